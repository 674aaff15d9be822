package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/engines"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// atOnce is the number of engines that are checked in parallel.
const atOnce = 8

// look runs check --live.
func (f *checkFlags) look(cmd *cobra.Command) error {
	if (f.endpoints == "") == (f.admin == "") || f.config != "" || f.effective {
		return cli.UsageError{Err: errors.New("--live requires either --endpoints or --admin, and excludes --config and --print-effective")}
	}
	ctx := cmd.Context()
	targets, err := f.targets(ctx)
	if err != nil {
		return err
	}
	key, err := server.ReadEngineKey(f.engineKey)
	if err != nil {
		return err
	}
	for i := range targets {
		targets[i].Key = key
	}
	models, err := f.loadModels(ctx, targets, key)
	if err != nil {
		return err
	}
	defer models.Close()
	found := make([]*engines.Live, len(targets))
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, t := range targets {
		wg.Go(func() {
			slots <- struct{}{}
			found[i] = engines.Examine(ctx, t, models)
			<-slots
		})
	}
	wg.Wait()
	if !f.output.IsText() {
		err = f.output.Write(cmd.OutOrStdout(), found)
	} else {
		writeLive(cmd.OutOrStdout(), found)
	}
	if err == nil && slices.ContainsFunc(found, func(l *engines.Live) bool { return len(l.Problems) > 0 }) {
		return cli.ExitCode(1)
	}
	return err
}

// targets are the endpoints of the file or of the replica.
func (f *checkFlags) targets(ctx context.Context) (out []engines.Target, err error) {
	if f.admin != "" {
		a := adminFlags{admin: f.admin, pool: f.pool, output: f.output}
		var st server.Status
		if err := a.get(ctx, "/status", &st); err != nil {
			return nil, err
		}
		for _, e := range st.Endpoints {
			t := engines.Target{Name: e.Name, Address: e.Address, Models: e.Models}
			for _, st := range e.Streams {
				if strings.HasPrefix(st.Events, "tcp://") { // others connect to the picker
					t.Streams = append(t.Streams, events.Stream{Events: st.Events, Replay: st.Replay, Topic: st.Topic})
				}
			}
			out = append(out, t)
		}
		return out, nil
	}
	list, problems := discovery.Load(f.endpoints)
	for _, p := range problems {
		err = errors.Join(err, errors.New(p.String()))
	}
	for _, e := range list {
		t := engines.Target{Name: e.Name, Address: e.HostPort(), Models: e.Models, Engine: e.Engine, Metrics: e.Metrics}
		if ev := e.Events; ev.Port > 0 && !ev.Inbound {
			t.Streams = events.PortStreams(cmp.Or(ev.Host, e.Host), ev.Port, ev.ReplayPort, max(ev.Ranks, 1), ev.Topic)
		}
		out = append(out, t)
	}
	return out, err
}

// loadModels reads the models whose folders are given or found on this machine.
func (f *checkFlags) loadModels(ctx context.Context, targets []engines.Target, key string) (*prompt.Models, error) {
	var urls []string
	for _, t := range targets {
		urls = append(urls, t.Address)
	}
	list, err := engines.Tokenizers(f.models, engines.Reachable(ctx, urls, key))
	if err != nil {
		return nil, err
	}
	models := prompt.NewModels(prompt.ModelsOptions{})
	var configs []prompt.Config
	for _, t := range list {
		configs = append(configs, prompt.Config{Path: t.Folder, Options: prompt.Options{Name: t.Model}})
	}
	models.Set(configs)
	if err := models.Wait(ctx); err != nil {
		models.Close()
		return nil, err
	}
	for _, s := range models.Status() {
		if s.Error != "" {
			models.Close()
			return nil, fmt.Errorf("model %s at %s: %s", s.Name, s.Path, s.Error)
		}
	}
	return models, nil
}

func writeLive(w io.Writer, found []*engines.Live) {
	problems := 0
	for _, l := range found {
		fmt.Fprintln(w, strings.Join(slices.DeleteFunc([]string{l.Name, l.Address, l.Engine, l.Version}, func(s string) bool { return s == "" }), " "))
		if l.BlockSize > 0 {
			fmt.Fprintf(w, "  blocks of %d tokens\n", l.BlockSize)
		}
		for _, model := range slices.Sorted(maps.Keys(l.Rendering)) {
			for _, r := range l.Rendering[model] {
				if r.Equal {
					fmt.Fprintf(w, "  %s: %s: equal (%s)\n", model, r.Chat, r.Route)
				} else if !r.Complete() {
					fmt.Fprintf(w, "  %s: %s\n", model, r.String())
				}
			}
		}
		for _, s := range l.Streams {
			fmt.Fprintf(w, "  events %s: %d bytes, topics %q\n", s.Events, s.Bytes, s.Topics)
		}
		if l.Cached >= 0 {
			fmt.Fprintf(w, "  cached tokens: %d of %d when a prompt came again\n", l.Cached, l.Prompt)
		}
		for _, n := range l.Notes {
			fmt.Fprintf(w, "  note: %s\n", n)
		}
		for _, p := range l.Problems {
			fmt.Fprintf(w, "  PROBLEM: %s\n", p)
		}
		problems += len(l.Problems)
	}
	if problems == 0 {
		fmt.Fprintf(w, "%d engines, no problems\n", len(found))
	} else {
		fmt.Fprintf(w, "%d engines, %d problems\n", len(found), problems)
	}
}
