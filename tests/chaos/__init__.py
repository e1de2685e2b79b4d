"""The daemon is killed, everywhere and at any moment, and its promises are held against the world.

What is checked is never asked of the daemon alone: engines bear witness themselves, by a lock on
each device that they were given and by a line in a book for everything that happens to them.
"""
