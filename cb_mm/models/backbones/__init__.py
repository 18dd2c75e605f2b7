"""Vision Transformers that mmseg and mmdet can name as a backbone."""
