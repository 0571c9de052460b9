"""Letters in a folder: durable, in order, whole, private."""

import os
import stat
from pathlib import Path

import anyio
import pytest

from xnagent.errors import StoreWriteError, UsageError
from xnagent.store.mailbox import LONGEST_BYTES, FolderMailbox, Letter, mailbox_folder


@pytest.fixture
def mailbox(tmp_path: Path) -> FolderMailbox:
    return FolderMailbox(mailbox_folder(tmp_path / "s-1.db"))


async def test_letters_come_in_the_order_in_which_they_were_posted_and_stay_until_discarded(mailbox: FolderMailbox):
    assert await mailbox.letters() == ()
    sent = [Letter(kind="message", text=f"n{number} é\ud800") for number in range(12)]
    names = [await mailbox.post(letter) for letter in sent]
    assert names == sorted(names)
    found = await mailbox.letters()
    assert [letter.letter for letter in found] == names
    assert [letter.text for letter in found] == [f"n{number} é?" for number in range(12)]
    assert await mailbox.letters() == found
    for name in names:
        await mailbox.discard(name)
        await mailbox.discard(name)
    assert not mailbox.folder.exists()


async def test_a_clock_that_goes_back_does_not_change_the_order(mailbox: FolderMailbox):
    mailbox.folder.mkdir()
    future = "99999999999999999990-00000000"
    (mailbox.folder / f"{future}.letter").write_text('{"kind":"message","text":"first","epoch":null}')
    await mailbox.post(Letter(kind="message", text="second"))
    assert [letter.text for letter in await mailbox.letters()] == ["first", "second"]


async def test_the_folder_is_the_users_own_and_nothing_half_written_is_read(mailbox: FolderMailbox):
    name = await mailbox.post(Letter(kind="cancel", text="enough", epoch=3))
    assert stat.S_IMODE(mailbox.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((mailbox.folder / f"{name}.letter").stat().st_mode) == 0o600
    (mailbox.folder / "00000000000000000001-aa.draft").write_text('{"kind":"message"')
    assert await mailbox.letters() == (Letter(letter=name, kind="cancel", text="enough", epoch=3),)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"kind":"order","text":"x","epoch":null}', b'{"kind":"message"}', b"x" * 300_000],
)
async def test_what_is_no_letter_is_put_aside_and_does_not_hold_up_the_rest(mailbox: FolderMailbox, content: bytes):
    name = await mailbox.post(Letter(kind="message", text="good"))
    strange = mailbox.folder / "00000000000000000001-aa.letter"
    strange.write_bytes(content)
    assert [letter.letter for letter in await mailbox.letters()] == [name]
    assert strange.with_name(f"{strange.name}.unreadable").read_bytes() == content


async def test_links_and_pipes_are_not_followed(mailbox: FolderMailbox, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text('{"kind":"message","text":"secret","epoch":null}')
    mailbox.folder.mkdir()
    (mailbox.folder / "1-a.letter").symlink_to(secret)
    os.mkfifo(mailbox.folder / "2-b.letter")
    assert await mailbox.letters() == ()
    assert secret.exists()


async def test_a_message_too_long_for_a_history_is_refused_with_a_way_out(mailbox: FolderMailbox):
    with pytest.raises(UsageError, match="put the rest into a file"):
        await mailbox.post(Letter(kind="message", text="x" * LONGEST_BYTES))
    assert not mailbox.folder.exists()


async def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path):
    (tmp_path / "s-1.letters").write_text("in the way")
    with pytest.raises(StoreWriteError, match="MAILBOX_WRITE_FAILED"):
        await FolderMailbox(tmp_path / "s-1.letters").post(Letter(kind="message", text="x"))


async def test_arrival_returns_when_there_is_a_letter(mailbox: FolderMailbox):
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(mailbox.arrival)
            await mailbox.post(Letter(kind="message", text="x"))
        await mailbox.arrival()


async def test_posting_beside_a_reader_that_removes_the_folder_loses_nothing(mailbox: FolderMailbox):
    got: list[str] = []

    async def take() -> None:
        while len(got) < 40:
            for letter in await mailbox.letters():
                got.append(letter.text)
                await mailbox.discard(letter.letter)
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(40):
        async with anyio.create_task_group() as group:
            group.start_soon(take)
            for number in range(40):
                await mailbox.post(Letter(kind="message", text=f"{number}"))
    assert got == [f"{number}" for number in range(40)]
