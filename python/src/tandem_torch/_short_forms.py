"""The short forms of a group's own methods: group.broadcast(tensor, root) for group.broadcast([tensor], options)."""

import functools

import torch

_OPTIONS = {"root": "rootRank", "op": "reduceOp", "timeout": "timeout"}


def with_short_form(options, tensors, *fields):
    """Decorates a method that takes `tensors` lists, then an object of the type `options`. In the short form each of the
    lists is its only element, and `fields` ("root", "op", "timeout") replace the options."""

    def decorate(method):
        @functools.wraps(method)
        def call(self, *arguments, **named):
            data = arguments[:tensors]
            if not any(isinstance(one, torch.Tensor) for one in data):
                return method(self, *arguments, **named)
            opts = options()
            for field, value in {**dict(zip(fields, arguments[tensors:])), **named}.items():
                if value is not None:
                    setattr(opts, _OPTIONS[field], value)
            return method(self, *([one] for one in data), opts)

        return call

    return decorate
