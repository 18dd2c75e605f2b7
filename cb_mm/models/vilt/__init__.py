"""Hugging Face's ViLT with Context Broadcasting, as a model of mmengine.

Nothing else in cb_mm imports these modules, so that transformers stays optional: configs name
``cb_mm.evaluation.vqa`` in their ``custom_imports``.
"""
