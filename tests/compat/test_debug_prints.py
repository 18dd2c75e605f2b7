"""What mmengine prints although nobody asked for debugging is left out, and nothing else."""

from __future__ import annotations

import logging

import mmengine.logging
import pytest

from cb_mm.checkpoints import mmengine_files


@pytest.fixture(params=[True, False], ids=['on', 'off'])
def on(request):
    """Whether the safe behaviour is on; it is for all the other tests."""
    if not request.param:
        mmengine_files.uninstall()
    yield request.param
    mmengine_files.install()


def test_only_messages_for_debugging_without_a_logger_are_left_out(on, capsys):
    mmengine.logging.print_log('Could not import an optional source', level=logging.DEBUG)
    mmengine.print_log('nor from here', level=logging.DEBUG)
    mmengine.logging.print_log('said', level=logging.INFO)
    lines = capsys.readouterr().out.splitlines()
    assert lines == (['said'] if on else ['Could not import an optional source', 'nor from here',
                                          'said'])  # fmt: skip


def test_a_logger_that_asks_for_debugging_gets_it(on, caplog):
    logger = logging.getLogger('asks')
    with caplog.at_level(logging.DEBUG, 'asks'):
        mmengine.logging.print_log('detail', logger=logger, level=logging.DEBUG)
    assert caplog.messages == ['detail']
