"""Members of torch's ProcessGroup that a group of tandem lacks. Torch's own methods forward to a Backend, which this group has none of: some raise errors without advice, others (hooks before and after operations) do nothing in silence."""


def _absent(what, instead):
    def refuse(self, *_, **__):
        raise NotImplementedError(f"tandem has no {what}; {instead}")

    return refuse


class AbsentParts:
    """A base before ProcessGroup."""

    supports_window = False
    new_window = _absent("one-sided windows", "send, recv and all_to_all move blocks between ranks")

    supports_abort_hooks = supports_completion_hooks = False
    register_abort_hook = _absent("hooks of abort()", "failures are exceptions of the call or of wait()")
    _register_on_completion_hook = _absent("hooks of completion", "work.get_future().then(hook) calls one")
    register_pre_hook = register_post_hook = _absent("hooks before or after operations", "torch.profiler shows operations with their shapes")
