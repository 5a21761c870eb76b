"""The explorer: a local page on which every choice is a control and every answer follows at once.

``state`` says what can be chosen, ``answer`` what it means, both without Dash; ``layout`` and ``app`` put them on a
page.
"""
