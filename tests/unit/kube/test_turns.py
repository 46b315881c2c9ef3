"""Lists go one after the other, and none waits for ever."""

from __future__ import annotations

import threading
import time

from rebalancer.kube.watch.reflector import Turns

_LONG = 30.0


def test_who_asks_first_lists_first_and_alone() -> None:
    turns = Turns(threading.Event(), _LONG)
    order: list[int] = []
    at_once: list[int] = []
    there = 0

    def lists(number: int) -> None:
        nonlocal there
        with turns.turn():
            there += 1
            at_once.append(there)
            order.append(number)
            there -= 1

    threads = [threading.Thread(target=lists, args=(i,)) for i in range(8)]
    with turns.turn():
        for waiting, thread in enumerate(threads, 2):
            thread.start()
            until = time.monotonic() + _LONG
            while len(turns._line) < waiting and time.monotonic() < until:
                time.sleep(0.001)
        assert order == []
    for thread in threads:
        thread.join(_LONG)
    assert order == list(range(8))
    assert set(at_once) == {1}


def test_a_list_that_hangs_holds_nobody_up_for_long() -> None:
    turns = Turns(threading.Event(), patience=0.05)
    with turns.turn(), turns.turn():
        pass  # the second did not wait for the end of the first


def test_behind_a_list_that_hangs_the_others_still_go_one_by_one() -> None:
    turns = Turns(threading.Event(), patience=0.5)
    at_once: list[int] = []
    there: list[int] = []

    def lists(number: int) -> None:
        with turns.turn():
            there.append(number)
            at_once.append(len(there))
            time.sleep(0.001)
            there.remove(number)

    with turns.turn():
        threads = [threading.Thread(target=lists, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_LONG)
    assert len(at_once) == 8
    assert max(at_once) < 4  # one at a time, unless the machine stops for half a second


def test_who_is_told_to_end_does_not_wait() -> None:
    stop = threading.Event()
    turns = Turns(stop, patience=10 * _LONG)
    stop.set()
    began = time.monotonic()
    with turns.turn(), turns.turn():
        assert time.monotonic() - began < _LONG
