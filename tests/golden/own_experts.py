"""DeepSeek-MoE in plain torch: its code is on the hub and not in transformers.

Written from its published config and from the description in DeepSeekMoE (https://arxiv.org/abs/2401.06066).
N tokens, E experts, k of which compute each token.
"""

import itertools

import torch
from own_code import LLAMA_BLOCK, LLAMA_MLP, LLAMA_STACK, Block, Causal, Mlp, Stack, attend, rotate, split_heads
from torch.nn import Linear, Module, ModuleList, Parameter
from torch.nn.functional import linear, one_hot
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig


class DeepseekConfig(PretrainedConfig):
    model_type = "deepseek"


class DeepseekAttention(Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.width = config.hidden_size // config.num_attention_heads
        for name, heads in (("q_proj", 0), ("k_proj", 1), ("v_proj", 1)):
            heads = config.num_key_value_heads if heads else config.num_attention_heads
            setattr(self, name, Linear(config.hidden_size, heads * self.width, bias=False))
        self.o_proj = Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x):
        q, k, v = (split_heads(project(x), self.width) for project in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(attend(rotate(q, self.config.rope_theta), rotate(k, self.config.rope_theta), v))


class Router(Module):
    def __init__(self, config):
        super().__init__()
        self.weight = Parameter(torch.ones(config.n_routed_experts, config.hidden_size))


class DeepseekExperts(Module):
    """The shared experts, and the k experts with the greatest share of the softmax, weighted by it."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        hidden, width = config.hidden_size, config.moe_intermediate_size
        self.gate = Router(config)
        self.experts = ModuleList(Mlp(hidden, width, LLAMA_MLP) for _ in range(config.n_routed_experts))
        self.shared_experts = Mlp(hidden, width * config.n_shared_experts, LLAMA_MLP)
        self.balance = None  # the load-balancing loss of the last pass

    def forward(self, x):
        shares = linear(x, self.gate.weight).softmax(-1)  # [B, T, E]
        weights, chosen = shares.topk(self.config.num_experts_per_tok, dim=-1)
        if self.config.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdim=True)
        self.balance = self.balance_loss(shares, chosen)
        choice = one_hot(chosen, self.config.n_routed_experts).to(x.dtype)  # [B, T, k, E]
        mixture = (choice * weights.unsqueeze(-1)).sum(-2)  # [B, T, E], zero except at the chosen ones
        all_experts = torch.stack([expert(x) for expert in self.experts], dim=-2)  # [B, T, E, D]
        return (mixture.unsqueeze(-1) * all_experts).sum(-2) + self.shared_experts(x)

    def balance_loss(self, shares, chosen):
        """Equations 12 to 14, for each sequence alone if seq_aux."""
        experts, each = self.config.n_routed_experts, self.config.num_experts_per_tok
        if not self.config.seq_aux:
            shares, chosen = shares.flatten(0, 1).unsqueeze(0), chosen.flatten(0, 1).unsqueeze(0)
        length = shares.shape[1]
        frequency = one_hot(chosen, experts).sum((1, 2)) * experts / (each * length)  # [B, E]
        return (frequency * shares.mean(1)).sum(-1).mean()


class DeepseekForCausalLM(Causal):
    config_class = DeepseekConfig

    def __init__(self, config):
        super().__init__(config)
        layers = itertools.count()

        def block(config):
            layer = next(layers)
            sparse = layer >= config.first_k_dense_replace and layer % config.moe_layer_freq == 0
            mlp = DeepseekExperts(config) if sparse else Mlp(config.hidden_size, config.intermediate_size, LLAMA_MLP)
            return Block(config, LLAMA_BLOCK, DeepseekAttention(config), mlp, config.rms_norm_eps)

        self.model = Stack(config, LLAMA_STACK, block, config.rms_norm_eps)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def balance(self):
        """The load-balancing loss of the last pass, with its factor."""
        experts = [module for module in self.modules() if isinstance(module, DeepseekExperts)]
        return self.config.aux_loss_alpha * sum(module.balance for module in experts)


AutoConfig.register("deepseek", DeepseekConfig)
AutoModelForCausalLM.register(DeepseekConfig, DeepseekForCausalLM)
