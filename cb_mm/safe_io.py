"""Safe reading and atomic writing for all of mmengine, in the process that imports this module.

``import cb_mm`` alone leaves mmengine as it is. Our tools and the configs of cb_mm import this
module too, and anyone else may; a call of `cb_mm.apis` switches the same on until it returns. From
then on

- every checkpoint (``Runner.resume``, ``load_from``, ``init_cfg``) goes through `read_checkpoint`,
  which runs no code: the original mmengine cannot resume with torch >= 2.6, and the maintained one
  falls back to unsafe unpickling when safe unpickling fails;
- every local file that mmengine writes is written atomically;
- upstream's ``init_model`` warns where a checkpoint was trained with another mean and std than the
  config's, which mmengine cannot know;
- mmengine prints no debug messages.
"""

from .checkpoints.mmengine_files import install, uninstall

__all__ = ['install', 'uninstall']

install()
