package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"vramscope/bytesize"
	"vramscope/internal/cli"
	"vramscope/internal/plan"
	"vramscope/internal/term"
)

type fitOptions struct {
	plan.Setup
	gpu           string
	memory, limit bytesize.Size
	search        bool
	output        string
	format        *cli.Format
}

func newFitCommand(env *cli.Env) *cobra.Command {
	var o fitOptions
	cmd := &cobra.Command{
		Use:   "fit MODEL",
		Short: "Say whether a model will train or run on a card, before the run",
		Long: `Fit estimates the memory of a job from the description of its model: a
config.json of Hugging Face (or the folder that holds it), or a .pt2 file of
torch.export. It needs neither Python nor a GPU: it runs the model's operators
without the numbers, keeps what autograd keeps, and sends every request through
the simulated allocator of PyTorch 2.11.

--memory is what a job can take on the card (the data base knows it for --gpu),
--limit what the process may reserve. The job fits if the upper end of the
interval stays below both.

EXIT STATUS
  0  it fits, or there was nothing to compare with
  1  it does not fit
  2  wrong usage, or the model cannot be read`,
		Example: `  vramscope fit gpt2/config.json --batch 8 --seq 512 --gpu rtx4090
  vramscope fit resnet50.pt2 --batch 32 --image 224 --optimizer sgdm --memory 10GiB
  vramscope fit llama/ --batch 4 --seq 2048 --precision amp-bf16 --checkpoint full --gpu a100-80gb --plan`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return runFit(env, &o, args[0]) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Mode, "mode", "train", "train or infer")
	fs.Int64Var(&o.Batch, "batch", 1, "samples in one forward pass on one device (the micro-batch)")
	fs.Int64Var(&o.Seq, "seq", 512, "tokens of a sample")
	fs.Int64Var(&o.EncoderSeq, "encoder-seq", 0, "tokens of the encoder, where it has its own length")
	fs.Int64Var(&o.Image, "image", 0, "height and width of an image; by default as exported")
	fs.StringVar(&o.Precision, "precision", "fp32", "fp32, amp-bf16, amp-fp16 (autocast over float32 weights), bf16, fp16 (weights of that type)")
	fs.StringVar(&o.Optimizer, "optimizer", "adamw", "adamw, adamw-fused, adamw-loop, sgd, sgdm, adafactor, rmsprop, lion, adam8bit, none")
	fs.StringVar(&o.Checkpoint, "checkpoint", "none", "activation checkpointing: none or full (every block)")
	fs.StringVar(&o.Attention, "attention", "sdpa", "sdpa or eager")
	fs.IntVar(&o.Accumulate, "accumulate", 1, "forward passes per optimizer step")
	fs.StringVar(&o.ZeroGrad, "zero-grad", "set-to-none", "set-to-none or zero")
	fs.StringVar(&o.MemoryFormat, "memory-format", "contiguous", "contiguous or channels_last")
	fs.StringVar(&o.Conf, "conf", "", "allocator settings, as in PYTORCH_CUDA_ALLOC_CONF")
	fs.StringVar(&o.LoRA, "lora", "", "train low-rank adapters only: r=16,targets=q_proj:v_proj,dropout=0.05 (targets: all-linear if not given)")
	fs.StringVar(&o.gpu, "gpu", "", "the card, by a name that `vramscope gpus` knows; all lists the cards on which it fits")
	fs.Var(&o.memory, "memory", "what a job can take on the card, such as 24GiB")
	fs.Var(&o.limit, "limit", "what the process may reserve, such as 20GiB")
	fs.BoolVar(&o.search, "plan", false, "search for measures even if it fits")
	fs.StringVarP(&o.output, "output", "o", "", "write the result to this file")
	o.format = cli.FormatFlag(fs, "text", "json")
	return cmd
}

func runFit(env *cli.Env, o *fitOptions, path string) error {
	gpu := o.gpu
	if gpu == "all" {
		gpu = ""
	}
	room, err := plan.FindRoom(gpu, o.memory, o.limit)
	if err != nil {
		return err
	}
	a, g, err := plan.Fit(path, o.Setup, room)
	if err != nil {
		return err
	}
	if a.Fits != nil && (o.search || !*a.Fits) {
		if a.Plans, err = plan.Search(path, g, o.Setup, room, a); err != nil {
			return err
		}
		n, err := plan.LargestBatch(path, g, o.Setup, room)
		if err != nil {
			return err
		}
		a.LargestBatch = &n
	}
	if o.gpu == "all" {
		if a.Cards, err = plan.AllCards(path, o.Setup); err != nil {
			return err
		}
	}
	err = cli.Output(env, o.output, func(w io.Writer) error {
		if o.format.String() == "json" {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(a)
		}
		p := term.New(w, env.Getenv)
		plan.Print(p, a)
		return p.Err()
	})
	if err != nil {
		return err
	}
	if a.Fits != nil && !*a.Fits {
		return cli.No
	}
	return nil
}
