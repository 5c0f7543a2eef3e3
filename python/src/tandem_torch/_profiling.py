"""Operations as torch's profilers show those of other backends: "gloo:all_reduce" if tandem replaces gloo, else
"tandem:all_reduce", with the shapes of the tensors, from the call to the end."""

import functools
import threading

import torch
from torch.autograd import _profiler_enabled, _record_function_with_args_enter


class _Event:
    def __init__(self, title, tensors):
        self._ended = torch.futures.Future()
        record = _record_function_with_args_enter(title, *tensors)
        # The operation under torch.profiler.record_function(): the record ends with the future.
        torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(record, self._ended)

    def end(self):
        # The profiler calls an event asynchronous if it ends in another thread than it began in. The waiting thread is
        # often the thread that called, so another one ends it: in a profile only.
        thread = threading.Thread(target=self._ended.set_result, args=(None,))
        thread.start()
        thread.join()


def recorded(name, tensors=lambda *arguments: arguments[0]):
    """Decorates a method of a group that returns a TandemWork; `tensors` of its arguments are the event's inputs."""

    def decorate(method):
        @functools.wraps(method)
        def call(self, *arguments, **named):
            if not _profiler_enabled():
                return method(self, *arguments, **named)
            event = _Event(f"{self.asked_for}:{name}", tensors(*arguments, *named.values()))
            try:
                work = method(self, *arguments, **named)
            except BaseException:
                event.end()
                raise
            work.when_ended(event.end)
            return work

        return call

    return decorate
