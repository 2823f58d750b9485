#!/usr/bin/env python3
"""Times the forms of attention that cuDNN's graphs offer, forward and backward, in bf16, and how far they are from fp64.

    python3 bench/gpu/cudnn_forms.py      needs torch, a GPU and the package nvidia-cudnn-frontend

Forms: causal; ALiBi as an attribute (slopes by the number of heads); ALiBi by a score modifier with a tensor of slopes; a
window; a soft cap; beside them LibTorch's flash attention, plain and with a window, and cuDNN's with q and k of 192 dimensions
and v of 128. A form that does not run says why in its row. `times` is against the causal form of the same shape.
"""

import math

import cudnn
import torch

from attention_kernels import drawn, milliseconds

SHAPES = ((8, 16, 16, 2048, 128), (8, 16, 4, 2048, 128), (2, 32, 8, 8192, 128))
SMALL = (2, 4, 2, 256, 128)
WINDOW, CAP = 512, 50.0
TYPES = {torch.bfloat16: cudnn.data_type.BFLOAT16, torch.float32: cudnn.data_type.FLOAT}


def slopes_of(heads):
    return torch.tensor([2.0 ** (-8.0 * (i + 1) / heads) for i in range(heads)], device="cuda").view(1, heads, 1, 1)


def indices(graph, scores):
    found = []
    for axis in (2, 3):
        index = graph.gen_index(input=scores, axis=axis, compute_data_type=cudnn.data_type.INT32)
        index.set_data_type(cudnn.data_type.INT32)
        found.append(index)
    return found


def later_hidden(graph, scores, rows, columns, value):
    mask = graph.cmp_ge(input=rows, comparison=columns, compute_data_type=cudnn.data_type.BOOLEAN)
    mask.set_data_type(cudnn.data_type.BOOLEAN)
    return graph.binary_select(input0=scores, input1=value, mask=mask)


class Form:
    """What a graph needs besides q, k and v: options of its nodes, and tensors that its modifiers read."""

    def __init__(self, name, options=None, tensors=None, change=None, change_back=None):
        self.name, self.options, self.tensors = name, options or {}, tensors or {}
        self.change, self.change_back = change, change_back

    def arguments(self, graph, values, backward):
        known = {name: graph.tensor(name=name, dim=list(value.shape), stride=list(value.stride()),
                                    is_pass_by_value=not value.is_cuda, data_type=TYPES[value.dtype])
                 for name, value in self.tensors.items()}
        values.update({known[name]: value for name, value in self.tensors.items()})
        more = {} if self.change else dict(self.options)
        if self.change:
            more["score_mod"] = lambda inner, scores: self.change(inner, scores, known)
            if backward:
                more["score_mod_bprop"] = lambda inner, scores: self.change_back(inner, scores, known)
        return more


def alibi_scores(graph, scores, known):
    rows, columns = indices(graph, scores)
    distance = graph.sub(a=columns, b=rows, compute_data_type=cudnn.data_type.INT32)
    distance.set_data_type(cudnn.data_type.INT32)
    bias = graph.mul(a=distance, b=known["slopes"], compute_data_type=cudnn.data_type.FLOAT)
    biased = graph.add(a=scores, b=bias, compute_data_type=cudnn.data_type.FLOAT)
    return later_hidden(graph, biased, *indices(graph, biased), known["hidden"])


def causal_scores(graph, scores, known):
    rows, columns = indices(graph, scores)
    return later_hidden(graph, scores, rows, columns, known["hidden"])


def causal_gradients(graph, gradients, known):
    rows, columns = indices(graph, gradients)
    return later_hidden(graph, gradients, rows, columns, known["zero"])


def unchanged(graph, gradients, _known):
    return gradients


def forms(heads):
    hidden, zero = torch.full((1, 1, 1, 1), -1e9), torch.zeros(1, 1, 1, 1)
    causal = {"use_causal_mask": True}
    return [Form("causal", causal), Form("ALiBi, attribute", {**causal, "use_alibi_mask": True}),
            Form("causal, score modifier", tensors={"hidden": hidden, "zero": zero}, change=causal_scores,
                 change_back=causal_gradients),
            Form("ALiBi, score modifier", tensors={"hidden": hidden, "zero": zero, "slopes": slopes_of(heads)},
                 change=alibi_scores, change_back=causal_gradients),
            Form("ALiBi, score modifier, gradients unchanged", tensors={"hidden": hidden, "slopes": slopes_of(heads)},
                 change=alibi_scores, change_back=unchanged),
            Form(f"window of {WINDOW}", {"diagonal_band_left_bound": WINDOW, "diagonal_band_right_bound": 0})]


def graph_of(build):
    graph = cudnn.pygraph(io_data_type=cudnn.data_type.BFLOAT16, intermediate_data_type=cudnn.data_type.FLOAT,
                          compute_data_type=cudnn.data_type.FLOAT)
    values = build(graph)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans(cudnn.build_plan_policy.HEURISTICS_CHOICE)
    workspace = torch.empty(max(graph.get_workspace_size(), 1), device="cuda", dtype=torch.uint8)
    return lambda: graph.execute(values, workspace)


def steps_of(form, q, k, v, outer):
    """Runs forward, runs backward, and the tensors that they write."""
    scale = 1.0 / math.sqrt(q.shape[-1])
    o, stats = torch.empty_like(q), torch.empty(*q.shape[:3], 1, device="cuda")
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))

    def forward(graph):
        ins = [graph.tensor_like(x) for x in (q, k, v)]
        values = dict(zip(ins, (q, k, v)))
        out, sums = graph.sdpa(name="sdpa", q=ins[0], k=ins[1], v=ins[2], generate_stats=True, attn_scale=scale,
                               **form.arguments(graph, values, backward=False))
        out.set_output(True).set_dim(list(o.shape)).set_stride(list(o.stride()))
        sums.set_output(True).set_data_type(cudnn.data_type.FLOAT)
        return {**values, out: o, sums: stats}

    def backward(graph):
        ins = [graph.tensor_like(x) for x in (q, k, v, o, outer, stats)]
        values = dict(zip(ins, (q, k, v, o, outer, stats)))
        outs = graph.sdpa_backward(name="sdpa_backward", q=ins[0], k=ins[1], v=ins[2], o=ins[3], dO=ins[4], stats=ins[5],
                                   attn_scale=scale, **form.arguments(graph, values, backward=True))
        for tensor, like in zip(outs, (dq, dk, dv)):
            tensor.set_output(True).set_dim(list(like.shape)).set_stride(list(like.stride()))
        return {**values, **dict(zip(outs, (dq, dk, dv)))}

    run_forward, run_backward = graph_of(forward), graph_of(backward)
    return run_forward, run_backward, (o, dq, dk, dv)


def inputs(batch, heads, kv_heads, tokens, width):
    """As projections give them: heads are views of [B, T, H·d]."""
    return [drawn(batch, tokens, count, width).transpose(1, 2) for count in (heads, kv_heads, kv_heads, heads)]


def exact(form, q, k, v, outer):
    """Output and gradients in fp64, by all products of queries and keys."""
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    copies = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(copies, 1).transpose(2, 3) / math.sqrt(q.shape[-1])
    distance = torch.arange(q.shape[2], device="cuda").view(-1, 1) - torch.arange(k.shape[2], device="cuda")
    if "ALiBi" in form.name:
        scores = scores - slopes_of(q.shape[1]).double() * distance
    hidden = (distance < 0) | (distance >= WINDOW) if "window" in form.name else distance < 0
    out = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v.repeat_interleave(copies, 1)
    return out.detach(), *torch.autograd.grad(out, (q, k, v), outer.double())


def error(name):
    form = next(each for each in forms(SMALL[1]) if each.name == name)
    tensors = inputs(*SMALL[:3], 1024 if "window" in form.name else SMALL[3], SMALL[4])
    forward, backward, found = steps_of(form, *tensors)
    forward()
    backward()
    wanted = exact(form, *tensors)
    return max(((x.double() - y).norm() / y.norm()).item() for x, y in zip(found, wanted))


def row(name, forward, both, plain, note=""):
    print(f"| {name} | {forward:.3f} | {both:.3f} | {both / plain if plain else 1.0:.2f} | {note} |", flush=True)


def flash_window(q, k, v, outer, width):
    q, k, v, outer = (x.transpose(1, 2) for x in (q, k, v, outer))
    tokens, scale = q.shape[1], 1.0 / math.sqrt(q.shape[-1])
    arguments = dict(scale=scale, window_size_left=width, window_size_right=0 if width is not None else None)
    forward = torch.ops.aten._flash_attention_forward
    backward = torch.ops.aten._flash_attention_backward

    def run():
        out, sums, state, offset, _ = forward(q, k, v, None, None, tokens, tokens, 0.0, True, False, **arguments)
        return out, sums, state, offset

    def both():
        out, sums, state, offset = run()
        backward(outer, q, k, v, out, sums, None, None, tokens, tokens, 0.0, True, state, offset, **arguments)
    return run, both


def wide_keys(q, k, v, outer):
    """cuDNN with q and k of 192 dimensions, as ALiBi's eight more would be padded to, and v as it is."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k = (torch.nn.functional.pad(x, (0, 192 - x.shape[-1])) for x in (q, k))
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))

    def run():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                                    enable_gqa=q.shape[1] != k.shape[1])
    return run, lambda: torch.autograd.grad(run(), (q, k, v), outer)


def others(tensors, plain):
    for name, make in (("flash", lambda: flash_window(*tensors, None)),
                       (f"flash, window of {WINDOW}", lambda: flash_window(*tensors, WINDOW - 1)),
                       ("q and k of 192", lambda: wide_keys(*tensors))):
        try:
            run, both = make()
            row(name, milliseconds(run), milliseconds(both), plain)
        except Exception as fault:  # noqa: BLE001 - the row says it
            print(f"| {name} | {str(fault).splitlines()[0][:150]} |", flush=True)


def measure(shape):
    print(f"\n{shape}\n\n| form | forward, ms | both, ms | times | largest error |\n|---|--:|--:|--:|--:|")
    tensors, plain = inputs(*shape), None
    for form in forms(shape[1]):
        try:
            forward, backward, _ = steps_of(form, *tensors)
            first, both = milliseconds(forward), milliseconds(lambda: (forward(), backward()))
            plain = plain or both
            row(form.name, first, both, plain, f"{error(form.name):.1e}")
        except Exception as fault:  # noqa: BLE001
            print(f"| {form.name} | {str(fault).splitlines()[0][:150]} |", flush=True)
    others(tensors, plain)


def copies():
    """GB/s between pinned memory and the device, each way."""
    there, here = torch.empty(2**30, dtype=torch.uint8, device="cuda"), torch.empty(2**30, dtype=torch.uint8).pin_memory()
    print("\npinned memory: to the device {:.1f} GB/s, from it {:.1f}".format(
        *(2**30 / 1e6 / milliseconds(lambda to=to, source=source: to.copy_(source, non_blocking=True))
          for to, source in ((there, here), (here, there)))))


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), "LibTorch", torch.__version__, "cuDNN", cudnn.backend_version())
    for each in SHAPES:
        measure(each)
    copies()
