"""One user's connections leave room for everybody else's."""

from supervisor.rpc.shares import PER_USER, RESERVED, UNFINISHED_BYTES, Shares


def test_one_user_has_a_share_of_the_connections() -> None:
    shares = Shares()
    assert all(shares.admit(("a", number), 1, admin=False) for number in range(PER_USER))
    assert not shares.admit("one more", 1, admin=False)
    assert shares.admit("another user", 2, admin=False)
    shares.leave(("a", 0))
    assert shares.admit("one more", 1, admin=False)


def test_admins_come_in_when_nobody_else_does() -> None:
    """However many users there are together."""
    shares = Shares(PER_USER + RESERVED)
    users = [shares.admit(number, number % 9, admin=False) for number in range(2_000)]
    assert users.count(True) == PER_USER
    admins = [shares.admit(("admin", number), 0, admin=True) for number in range(RESERVED + 1)]
    assert admins == [True] * RESERVED + [False]


def test_unfinished_requests_are_bounded_by_user() -> None:
    shares = Shares()
    half = UNFINISHED_BYTES // 2
    for key, uid in (("a", 1), ("b", 1), ("c", 2)):
        shares.admit(key, uid, admin=False)
    assert shares.keep("a", half)
    assert shares.keep("b", half)
    assert not shares.keep("b", half + 1)
    assert shares.keep("c", half + 1), "somebody else's"
    assert shares.keep("a", 0)
    assert shares.keep("b", half + 1)
    shares.leave("b")
    assert shares.keep("a", 2 * half)
    shares.admit("root", 0, admin=True)
    assert shares.keep("root", 10 * UNFINISHED_BYTES)
    shares.leave("root")
    shares.leave("root")
    assert shares.keep("root", 1), "it has left"
