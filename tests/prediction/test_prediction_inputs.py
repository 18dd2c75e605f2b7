"""What can be predicted on, what it is called, and what is refused."""

from __future__ import annotations

import pytest

from cb_mm.errors import UserError
from cb_mm.prediction.inputs import Video, find_inputs, name_for


@pytest.fixture
def files(tmp_path):
    for name in ('a/x.jpg', 'b/x.jpg', 'b/x.png', 'b/deep/y.PNG', 'b/notes.txt', 'clip.mp4'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b'x')
    return tmp_path


def kinds(found) -> list[tuple[str, str]]:
    return [(one.kind, one.source.rsplit('/', 1)[-1]) for one in found]


def test_files_folders_patterns_and_cameras(files):
    found = find_inputs([files / 'b', str(files / 'a' / '*'), files / 'clip.mp4', 0])
    assert kinds(found) == [
        ('image', 'y.PNG'), ('image', 'x.jpg'), ('image', 'x.png'), ('image', 'x.jpg'),
        ('video', 'clip.mp4'), ('camera', '0'),
    ]  # fmt: skip
    assert len(find_inputs([files, files / 'a' / 'x.jpg'])) == 5  # each once
    assert len(find_inputs([str(files / '**' / '*.jpg')])) == 2


def test_a_number_is_a_file_where_there_is_one(files, monkeypatch):
    (files / '0').write_bytes(b'x')
    monkeypatch.chdir(files)
    assert kinds(find_inputs(['0', '1'])) == [('image', '0'), ('camera', '1')]


@pytest.mark.parametrize(
    ('place', 'message'),
    [
        ('nowhere.jpg', r'^input .*nowhere\.jpg does not exist\.$'),
        ('b/*.gif', r'b/\*\.gif matches no image or video\.$'),
        ('empty', r'empty holds no images \(\.jpg, .*\) and no videos\.$'),
    ],
)
def test_what_is_not_there_is_named(files, place, message):
    (files / 'empty').mkdir()
    with pytest.raises(UserError, match=message):
        find_inputs([files / place])


def test_no_two_inputs_have_one_name(files):
    taken: set[str] = set()
    names = []
    for one in find_inputs([files / 'a', files / 'b', files / 'clip.mp4', 0]):
        names.append(name_for(one, taken))
        taken.add(names[-1].casefold())
    assert names == ['x', 'deep/y', 'b_x', 'x_png', 'clip', 'camera0']


def test_a_camera_that_is_not_there(capfd):
    (camera,) = find_inputs(['97'])
    with pytest.raises(UserError, match=r'^camera 97 cannot be opened: there is no such camera'):
        Video(camera)
    assert capfd.readouterr() == ('', ''), 'OpenCV does not add its own complaints'


def test_a_video_that_is_none(files):
    (video,) = find_inputs([files / 'clip.mp4'])
    with pytest.raises(UserError, match=r'^video .*clip\.mp4 cannot be opened'):
        Video(video)
