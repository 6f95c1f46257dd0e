"""Real failures whose cause is known. argv: name. Writes name.pickle (snapshot at the failure or the end) and name.json (error text, limit, peaks)."""
import sys, os, json, pickle, copy, io, torch, torch.nn as nn, torch.nn.functional as F
from workloads import tv, build, make_opt, UNet, hf_config
n = sys.argv[1]; out = os.environ['SNAPOUT']; torch.cuda.init(); torch.manual_seed(0)
G = 2**30
def limit(b): torch.cuda.set_per_process_memory_fraction(b / torch.cuda.mem_get_info()[1]); return b
L = None
kw = dict(max_entries=400000, context='all', stacks='python')
if n.startswith('ctx_alloc'): kw['context'] = 'alloc'
if n.startswith('ctx_state'): kw['context'] = 'state'
if n.startswith('ctx_none'): kw['context'] = None
torch.cuda.memory._record_memory_history(**kw)
def mlp(d, k): return nn.Sequential(*[m for _ in range(k) for m in (nn.Linear(d, d), nn.GELU())]).cuda()
def gpt(layers=4, n_embd=512, vocab=50257):
    import transformers as t
    return t.GPT2LMHeadModel(t.GPT2Config(n_embd=n_embd, n_layer=layers, n_head=8, vocab_size=vocab))
def llama(layers=4, vocab=128256, h=512, cache=False):
    import transformers as t
    c = t.LlamaConfig(hidden_size=h, intermediate_size=4*h, num_hidden_layers=layers, num_attention_heads=8, num_key_value_heads=8, vocab_size=vocab, max_position_embeddings=65536); c.use_cache = cache
    return t.LlamaForCausalLM(c)
err = None
observed = []
def obs(*a): observed.append(a[1:])
torch._C._cuda_attach_out_of_memory_observer(obs)
def train_step(m, opt, x, y):
    loss = F.cross_entropy(m(x), y); loss.backward(); opt.step(); opt.zero_grad(); return loss
try:
    if n == 'optimizer_state':      # forward and backward fit, AdamW's state does not
        L = limit(3 * G); m = mlp(4096, 24); opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
        for i in range(3): x = torch.randn(8, 4096, device='cuda'); m(x).square().mean().backward(); opt.step(); opt.zero_grad()
    elif n == 'evaluation':         # evaluation without no_grad at a larger batch
        L = limit(4 * G); m = tv('resnet18').cuda(); opt = make_opt('adamw', m.parameters())
        def evaluate(m):
            m.eval(); outs = []
            for i in range(20): outs.append(m(torch.randn(64, 3, 224, 224, device='cuda')))
        for i in range(4): train_step(m, opt, torch.randn(24, 3, 224, 224, device='cuda'), torch.randint(0, 1000, (24,), device='cuda'))
        evaluate(m)
    elif n == 'generation':         # kv cache grows until the limit
        L = limit(1 * G); m = llama(layers=8, vocab=32000, h=1024, cache=True).cuda().bfloat16().eval()
        x = torch.randint(0, 32000, (32, 64), device='cuda')
        with torch.no_grad(): m.generate(x, max_new_tokens=700, do_sample=False, eos_token_id=None, pad_token_id=0)
    elif n == 'checkpoint_save':    # a copy of model and optimizer on the card while saving
        L = limit(2 * G); m = mlp(2048, 24); opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
        def save_checkpoint(m, opt):
            state = {'model': copy.deepcopy(m.state_dict()), 'optim': copy.deepcopy(opt.state_dict())}
            torch.save(state, io.BytesIO())
        for i in range(3): x = torch.randn(256, 2048, device='cuda'); m(x).square().mean().backward(); opt.step(); opt.zero_grad()
        save_checkpoint(m, opt)
    elif n == 'logits':             # 128k vocabulary in float32
        L = limit(6 * G); m = llama(layers=4).cuda(); opt = make_opt('adamw', m.parameters())
        for b in (1, 1, 4):
            x = torch.randint(0, 128256, (b, 2048), device='cuda')
            with torch.autocast('cuda', dtype=torch.bfloat16): loss = m(input_ids=x, labels=x).loss
            loss.backward(); opt.step(); opt.zero_grad(); del loss
    elif n == 'leak_graph':         # losses kept with their graphs
        L = limit(4 * G); m = tv('resnet18').cuda(); opt = make_opt('sgdm', m.parameters()); history = []
        for i in range(40):
            x = torch.randn(8, 3, 224, 224, device='cuda'); y = torch.randint(0, 1000, (8,), device='cuda')
            out_ = m(x); loss = F.cross_entropy(out_, y); loss.backward(retain_graph=True); opt.step(); opt.zero_grad(); history.append(loss)
    elif n == 'leak_outputs':       # predictions kept on the card
        L = limit(2 * G); m = tv('resnet18').cuda(); opt = make_opt('sgdm', m.parameters()); feats = []
        for i in range(200):
            x = torch.randn(8, 3, 224, 224, device='cuda'); y = torch.randint(0, 1000, (8,), device='cuda')
            loss = F.cross_entropy(m(x), y); loss.backward(); opt.step(); opt.zero_grad()
            feats.append(x * 2)
    elif n == 'fragmentation':      # many live odd pieces keep segments open
        L = limit(6 * G); keep = []
        for r in range(40):
            tmp = [torch.empty((18 + r) << 20, dtype=torch.uint8, device='cuda') for _ in range(12)]
            keep.append([torch.empty(3 << 20, dtype=torch.uint8, device='cuda') for _ in range(3)]); del tmp
        big = torch.empty(3 * G, dtype=torch.uint8, device='cuda'); big2 = torch.empty(2 * G, dtype=torch.uint8, device='cuda')
    elif n == 'accum':              # accumulation with gradients kept; batch 8 x 4
        m = tv('resnet18').cuda(); opt = make_opt('adamw', m.parameters())
        for i in range(3):
            for a in range(4): (F.cross_entropy(m(torch.randn(8, 3, 224, 224, device='cuda')), torch.randint(0, 1000, (8,), device='cuda')) / 4).backward()
            opt.step(); opt.zero_grad(set_to_none=False)
    elif n == 'fp16_scaler':
        m = gpt().cuda(); opt = make_opt('adamw', m.parameters()); sc = torch.amp.GradScaler('cuda')
        for i in range(4):
            x = torch.randint(0, 50257, (4, 256), device='cuda')
            with torch.autocast('cuda', dtype=torch.float16): loss = m(input_ids=x, labels=x).loss
            sc.scale(loss).backward(); sc.unscale_(opt); torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0); sc.step(opt); sc.update(); opt.zero_grad(); del loss
    elif n.startswith('ctx_'):      # recordings without stacks: retries and empty_cache must be inferred
        L = limit(int(1.2 * G)); m = tv('resnet18').cuda(); opt = make_opt('adamw', m.parameters())
        for i in range(6):
            b = (8, 20, 12, 24, 6, 26)[i]
            train_step(m, opt, torch.randn(b, 3, 224, 224, device='cuda'), torch.randint(0, 1000, (b,), device='cuda'))
            if i in (1, 4): torch.cuda.empty_cache()
    elif n == 'retry_varlen':       # a limit that is just survived, by retries
        L = limit(int(float(os.environ.get('LIM', '11')) * G)); import random
        random.seed(0); s = dict(family='hf', model='gpt2', batch=8, seq=128); m, inp, loss_fn = build(s); m = m.cuda(); m.train(); opt = make_opt('adamw', m.parameters())
        for i in range(12):
            Ln = random.choice(range(32, 700, 17)); B = random.choice([8, 8, 4]); x = torch.randint(0, 50257, (B, Ln), device='cuda')
            with torch.autocast('cuda', dtype=torch.bfloat16): loss = m(input_ids=x, labels=x).loss
            loss.backward(); opt.step(); opt.zero_grad(); del x, loss
    elif n == 'stream_limit':       # pending frees, two streams, retries
        L = limit(400 << 20); s1, s2 = torch.cuda.Stream(), torch.cuda.Stream(); keep = []
        for i in range(60):
            with torch.cuda.stream(s1): a = torch.randn(1024, 1024 * (1 + i % 5), device='cuda'); b = a @ a.t()
            with torch.cuda.stream(s2):
                s2.wait_stream(s1); c = b * 2; a.record_stream(s2); b.record_stream(s2); d = torch.randn(3000 + 100 * i, 512, device='cuda')
            keep.append(d if i % 3 == 0 else None); del a, b, c, d
            if len([k for k in keep if k is not None]) > 8: keep = []
    else: raise KeyError(n)
except torch.OutOfMemoryError as e:
    err = str(e); import traceback; tb = traceback.format_exc()
snap = torch.cuda.memory._snapshot()
s = torch.cuda.memory_stats()
pickle.dump(snap, open(f'{out}/{n}.pickle', 'wb'))
json.dump(dict(name=n, error=err, traceback=tb if err else None, limit_bytes=L, observed=observed, peak_allocated_bytes=torch.cuda.max_memory_allocated(), peak_reserved_bytes=torch.cuda.max_memory_reserved(), stats=dict(s), num_alloc_retries=s['num_alloc_retries'], num_ooms=s['num_ooms'], torch=torch.__version__, gpu=torch.cuda.get_device_name(), summary=torch.cuda.memory_summary()), open(f'{out}/{n}.json', 'w'), default=str)
print(n, 'err' if err else 'ok', (err or '')[:90], 'retries', s['num_alloc_retries'], 'entries', [len(t) for t in snap['device_traces']], os.path.getsize(f'{out}/{n}.pickle'), flush=True)

# optimizer_first_step and longest_last were made the same way by:
#   optimizer_first_step: as optimizer_state with limit(int(3.6 * G))
#   longest_last: limit(5 * G), GPT-2 under autocast, batch 4, lengths 128, 200, 160, 256, 180, 220, 190, 1000
