package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// simFlags are the flags of sim.
type simFlags struct {
	fleet     fleet.Options
	preset    string
	kvTokens  int
	blockSize int
	events    bool
	arrays    bool
	modelDir  string
	prefill   int
	sidecar   int
	pd        sim.PDOptions
	link      float64
	logFormat string
	logLevel  string
}

func newSim() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run simulated engines",
		Long: `Runs simulated inference engines in one process. They answer OpenAI requests, serve
vLLM's metrics page, keep a paged prefix cache and publish KV-cache events. Timing follows
a step-time model; no LLM is run. Faults are injected through /sim/ on each engine.

With --prefill the first engines prefill for the others, with the fields of vLLM's
NixlConnector. The endpoints file has the roles, and for decode engines the ports of their
sidecars: run grapevine sidecar on each of them.`,
		Example: `  grapevine-lab sim --engines 8 --port 8000 --endpoints-file endpoints.yaml --write-model model/
  curl -X PUT 127.0.0.1:8000/sim/faults -d '{"slow":3}'
  grapevine-lab sim --engines 2 --prefill 1 --port 8200 --sidecar-port 8000 --endpoints-file endpoints.yaml`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.IntVar(&f.fleet.Engines, "engines", 1, "number of engines")
	fl.StringVar(&f.fleet.Host, "host", "127.0.0.1", "address of the first engine")
	fl.BoolVar(&f.fleet.Spread, "spread", false, "give each engine its own address instead of its own port")
	fl.IntVar(&f.fleet.Port, "port", 8000, "HTTP port of the first engine; 0 picks free ones")
	fl.IntVar(&f.fleet.EventPort, "event-port", 0, "KV-event port of the first engine; 0 picks free ones")
	fl.IntVar(&f.fleet.ReplayPort, "replay-port", 0, "replay port of the first engine; 0 picks free ones")
	fl.StringVar(&f.fleet.EndpointsFile, "endpoints-file", "", "write an endpoints file to this path")
	fl.StringVar(&f.fleet.Engine.Model, "served-model", "", "served model name (default: that of the vocabulary)")
	fl.Float64Var(&f.fleet.Engine.Speed, "speed", 1, "speed relative to real time")
	fl.IntVar(&f.fleet.Engine.Ranks, "ranks", 1, "data-parallel ranks of each engine")
	fl.StringVar(&f.preset, "preset", "70b", "step-time model: 70b or 8b")
	fl.IntVar(&f.kvTokens, "kv-tokens", 0, "size of the KV cache in tokens (default: the preset's)")
	fl.IntVar(&f.blockSize, "block-size", 16, "tokens per block")
	fl.BoolVar(&f.fleet.Engine.Core.ByPriority, "by-priority", false, "schedule requests by the priority in their bodies, lowest first, like vLLM with --scheduling-policy priority")
	fl.BoolVar(&f.events, "events", true, "publish KV-cache events")
	fl.BoolVar(&f.arrays, "event-arrays", false, "publish events in the positional form of vLLM before 0.24")
	fl.IntVar(&f.prefill, "prefill", 0, "engines, of --engines, that prefill for the others")
	fl.IntVar(&f.sidecar, "sidecar-port", 0, "with --prefill: port of the first decode engine's sidecar, in the endpoints file; the next one has the next port")
	fl.DurationVar(&f.pd.Lease, "lease", 30*time.Second, "with --prefill: how long blocks that are not read are kept")
	fl.Float64Var(&f.link, "gigabytes-per-second", 10, "with --prefill: speed of KV transfers")
	fl.StringVar(&f.modelDir, "write-model", "", "write the built-in vocabulary's tokenizer files into this folder, and report it as the model's folder")
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func (f *simFlags) run(cmd *cobra.Command) error {
	log, err := cli.Stderr().Logger(f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	if err := f.complete(log); err != nil {
		return err
	}
	if f.modelDir != "" {
		if err := vocab.New().WriteModel(f.modelDir); err != nil {
			return err
		}
		root, err := filepath.Abs(f.modelDir)
		if err != nil {
			return err
		}
		f.fleet.Engine.Root = root // engines name the folder of a local model, and the picker finds it there
	}
	fleet, err := fleet.Open(f.fleet)
	if err != nil {
		return err
	}
	for _, e := range fleet.Engines() {
		pub, replay := e.EventAddrs()
		fmt.Fprintf(cmd.OutOrStdout(), "%s http://%s events %s replay %s\n", e.Name(), e.Addr(), strings.Join(pub, ","), strings.Join(replay, ","))
	}
	<-cmd.Context().Done()
	return fleet.Close()
}

// complete converts flags to options of the engines.
func (f *simFlags) complete(log *slog.Logger) error {
	if f.fleet.Engines < 1 {
		return cli.UsageError{Err: fmt.Errorf("--engines %d: use 1 or more", f.fleet.Engines)}
	}
	o := &f.fleet.Engine
	o.Log = log
	o.Core.BlockSize = f.blockSize
	tokens := f.kvTokens
	switch strings.ToLower(f.preset) {
	case "70b":
		o.Core.Model = engine.Model70B
		if tokens == 0 {
			tokens = engine.KVTokens70B
		}
	case "8b":
		o.Core.Model = engine.Model8B
		if tokens == 0 {
			tokens = engine.KVTokens8B
		}
	default:
		return cli.UsageError{Err: fmt.Errorf("--preset %q: want 70b or 8b", f.preset)}
	}
	if f.blockSize <= 0 || tokens < f.blockSize {
		return cli.UsageError{Err: fmt.Errorf("--block-size %d with --kv-tokens %d gives an empty cache", f.blockSize, tokens)}
	}
	o.Core.Blocks = tokens / f.blockSize
	if err := f.roles(); err != nil {
		return err
	}
	if f.events {
		o.Events = &sim.EventOptions{}
		if f.arrays {
			o.Events.Format = kvstream.FormatArray
		} else {
			o.Sources = "ranks" // as in recent vLLM
		}
	}
	return nil
}

// roles gives the engines roles.
func (f *simFlags) roles() error {
	switch {
	case f.prefill == 0 && f.sidecar == 0:
		return nil
	case f.prefill < 1 || f.prefill >= f.fleet.Engines:
		return cli.UsageError{Err: fmt.Errorf("--prefill %d of --engines %d: one engine or more must prefill, and one decode", f.prefill, f.fleet.Engines)}
	case f.sidecar < 0 || f.sidecar > 65535-f.fleet.Engines:
		return cli.UsageError{Err: fmt.Errorf("--sidecar-port %d is not a port", f.sidecar)}
	case !(f.link > 0) || f.pd.Lease <= 0:
		return cli.UsageError{Err: fmt.Errorf("--gigabytes-per-second %v and --lease %v must be positive", f.link, f.pd.Lease)}
	}
	f.pd.BytesPerSecond = f.link * 1e9
	f.fleet.Engine.PD = &f.pd
	f.fleet.Describe = func(i int, e *fleet.Endpoint) {
		e.Labels[endpoint.LabelRole] = "prefill"
		if i < f.prefill {
			return
		}
		e.Labels[endpoint.LabelRole] = "decode"
		if f.sidecar > 0 {
			e.Port = f.sidecar + i - f.prefill
		}
	}
	return nil
}
