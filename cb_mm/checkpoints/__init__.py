"""Reading weights and putting them into models, safely; writing them is in ``engine.hooks``."""
