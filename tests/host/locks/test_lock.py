import threading

from simcse_jax.errors import UserError
from simcse_jax.host.locks.lock import held, held_next_to


def in_a_thread(block) -> str:
    """What another job would hear."""
    heard = []

    def enter():
        try:
            with block:
                heard.append("")
        except UserError as error:
            heard.append(str(error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return heard[0]


def test_a_folder_has_its_lock_in_it_under_each_of_its_names(tmp_path):
    folder, link = tmp_path / "run", tmp_path / "link"
    link.symlink_to(folder)
    with held(folder) as check:
        check()
        assert [path.name for path in folder.iterdir()] == [".lock"]
        assert in_a_thread(held(link)).startswith(f"{link}: process ")
        with held(link):  # the same job may take it again
            pass
        assert in_a_thread(held(folder))
    assert in_a_thread(held(folder)) == "" and not list(folder.iterdir())


def test_what_is_replaced_as_a_whole_has_its_lock_next_to_it(tmp_path):
    (tmp_path / "link.npy").symlink_to(tmp_path / "emb.npy")
    with held_next_to(tmp_path / "link.npy"):
        assert (tmp_path / ".emb.npy.lock").exists()
        assert in_a_thread(held_next_to(tmp_path / "emb.npy")).startswith(f"{tmp_path / 'emb.npy'}: process ")
        assert in_a_thread(held_next_to(tmp_path / "other.npy")) == ""
    assert in_a_thread(held_next_to(tmp_path / "emb.npy")) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["link.npy"]
