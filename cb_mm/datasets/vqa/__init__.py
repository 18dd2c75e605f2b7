"""Visual question answering: questions, answers and images of VQAv2."""
