"""``cb-mm doctor``: the same as ``python -m cb_mm.doctor``."""


def main(argv: list[str]) -> int:
    """Print the report; 0 when everything fits, 1 when something must be fixed."""
    from cb_mm import doctor

    return doctor.main(argv)
