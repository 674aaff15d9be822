package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/engines"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
)

const (
	upWait = 30 * time.Second      // for Envoy and replica to answer
	upPoll = 10 * time.Millisecond // between looks
	upStop = 5 * time.Second       // for Envoy to end
	upAsk  = 3 * time.Second       // for one answer of them
)

// upFlags are the flags of up.
type upFlags struct {
	program Program

	engines, models              []string
	listen, admin, envoy, config string
	logLevel, engineKey          string
}

func newUp(p Program) *cobra.Command {
	f := upFlags{program: p}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Put engines behind an Envoy and a replica, with one command",
		Long: `Asks the engines which models they serve, looks for the tokenizers on this machine, starts a
replica and an Envoy in front of them, all on this machine, and says where requests go. Where
engines publish KV-cache events is found out by the replica. It ends on SIGINT and leaves nothing
behind.

Envoy is the one that --envoy or $ENVOY name, or that is found on PATH or in the cache of make
setup.`,
		Example: `  grapevine up --engine http://10.0.0.1:8000 --engine http://10.0.0.2:8000
  grapevine up --engine localhost:8000 --engine localhost:8001 --listen 127.0.0.1:8080`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.engines, "engine", nil, "URL or host:port of an engine (repeatable, at least one)")
	fl.StringArrayVar(&f.models, "model", nil, "NAME=FOLDER of a model's tokenizer files, where they are not found (repeatable)")
	fl.StringVar(&f.engineKey, "engine-key-file", "", "file with the key that engines want (--api-key there); clients show it themselves")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:8080", "where Envoy listens for clients")
	fl.StringVar(&f.admin, "admin", "127.0.0.1:9090", "metrics and status listener of the replica")
	fl.StringVar(&f.config, "config", "", "EndpointPickerConfig file (default: the built-in profile)")
	fl.StringVar(&f.envoy, "envoy", "", "Envoy binary")
	fl.StringVar(&f.logLevel, "log-level", "warn", "debug, info, warn or error")
	return cmd
}

func (f *upFlags) run(ctx context.Context, out, errOut io.Writer) error {
	start := time.Now()
	if len(f.engines) == 0 {
		return cli.UsageError{Err: errors.New("--engine URL is needed at least once")}
	}
	log, err := cli.NewLogger(errOut, "text", f.logLevel)
	if err != nil {
		return err
	}
	envoy, err := f.findEnvoy()
	if err != nil {
		return err
	}
	key, err := server.ReadEngineKey(f.engineKey)
	if err != nil {
		return err
	}
	found, err := engines.Ask(ctx, f.engines, key)
	if err != nil {
		return err
	}
	models, err := f.tokenizers(found)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "grapevine-up-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	list := filepath.Join(dir, "endpoints.yaml")
	if err := os.WriteFile(list, engines.EndpointsFile(found), 0o600); err != nil {
		return err
	}
	s, err := server.Open(server.Options{
		Version: f.program.Version, Plugins: f.program.Plugins, Listen: "127.0.0.1:0", Health: "-", Admin: f.admin, TLS: listen.TLS{Plaintext: true}, Endpoints: list, Config: f.config, Models: models,
		AllowModeOverride: true, ProbeRendering: true, EngineKeyFile: f.engineKey, Gateway: extproc.GatewayEnvoy, MaxMessageTimeout: envoyconf.MaxMessageTimeout, Linger: -1, Drain: upStop, Log: log,
	})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), upStop)
		defer cancel()
		_ = s.Stop(end)
	}()
	p := envoyconf.Params{Listen: f.listen, Admin: "127.0.0.1:0", ExtProc: []string{s.ExtProcAddr().String()}, Plaintext: true}
	for _, e := range found {
		p.Endpoints = append(p.Endpoints, e.Address)
	}
	bootstrap, err := envoyconf.Render(p)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		return err
	}
	ended, err := startEnvoy(ctx, envoy, file, errOut)
	if err != nil {
		return err
	}
	if err := awaitAnswer(ctx, "http://"+f.listen+"/v1/models", ended); err != nil {
		return errors.Join(err, ctx.Err())
	}
	took := time.Since(start)
	engines.AskStreams(ctx, found, key)
	f.report(out, found, models, s, took)
	select {
	case err := <-ended:
		return fmt.Errorf("envoy ended: %w", err)
	case <-ctx.Done():
		<-ended //nolint:errcheck // it was asked to end: how it did says nothing
		return nil
	}
}

// tokenizers are the models whose tokenizer files are given or found.
func (f *upFlags) tokenizers(found []engines.Engine) (list []server.ModelOptions, err error) {
	all, err := engines.Tokenizers(f.models, found)
	for _, t := range all {
		list = append(list, server.ModelOptions{Name: t.Model, Path: t.Folder})
	}
	return list, err
}

// findEnvoy returns the Envoy binary.
func (f *upFlags) findEnvoy() (string, error) {
	if f.envoy != "" {
		return exec.LookPath(f.envoy)
	}
	if os.Getenv("ENVOY") == "" {
		if path, err := exec.LookPath("envoy"); err == nil {
			return path, nil
		}
	}
	path, err := parts.EnvoyPath()
	if err != nil {
		return "", fmt.Errorf("no Envoy on PATH; --envoy FILE names one: %w", err)
	}
	return path, nil
}

// startEnvoy runs Envoy until ctx ends; how it ended comes over the channel.
func startEnvoy(ctx context.Context, path, config string, errOut io.Writer) (<-chan error, error) {
	cmd := exec.CommandContext(ctx, path, "-c", config, "--use-dynamic-base-id", "--log-level", "error")
	cmd.Stderr = errOut
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = upStop
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		if err := cmd.Wait(); err != nil {
			ended <- err
			return
		}
		ended <- errors.New("exit code 0")
	}()
	return ended, nil
}

// awaitAnswer waits until the way through Envoy and replica is there.
func awaitAnswer(ctx context.Context, url string, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, upWait)
	defer cancel()
	client := &http.Client{Timeout: upAsk}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
			// The replica answers this itself. An engine's answer means that Envoy
			// still goes without the replica.
			if resp.StatusCode == http.StatusOK && resp.Header.Get("x-envoy-upstream-service-time") == "" {
				return nil
			}
			err = errors.New(resp.Status)
		}
		select {
		case why := <-ended:
			return fmt.Errorf("envoy ended at once: %w", why)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, err)
		case <-time.After(upPoll):
		}
	}
}

// report says what was found and where requests go.
func (f *upFlags) report(out io.Writer, found []engines.Engine, models []server.ModelOptions, s *server.Server, took time.Duration) {
	have := map[string]string{}
	for _, m := range models {
		have[m.Name] = m.Path
	}
	for _, e := range found {
		for _, m := range e.Models {
			tokenizer := "no tokenizer found: prompts are matched by what was sent where (--model NAME=FOLDER)"
			if path := have[m.Name]; path != "" {
				tokenizer = "tokenizer " + path
			}
			fmt.Fprintf(out, "engine %s: model %s, %s\n", e.Address, m.Name, tokenizer)
		}
		fmt.Fprintf(out, "engine %s: %s\n", e.Address, sayStreams(e.Streams))
	}
	_, port, _ := net.SplitHostPort(f.listen)
	fmt.Fprintf(out, "ready after %.1fs: http://%s/v1 (status: grapevine status --admin http://%s)\n", took.Seconds(), f.listen, s.AdminAddr())
	if len(found) > 0 && len(found[0].Models) > 0 {
		fmt.Fprintf(out, "try: curl http://localhost:%s/v1/completions -H 'content-type: application/json' -d '{\"model\":%q,\"prompt\":\"Hello\",\"max_tokens\":16}'\n", port, found[0].Models[0].Name)
	}
}

// sayStreams says where an engine publishes what its cache holds.
func sayStreams(streams []events.Stream) string {
	if len(streams) == 0 {
		return "names no KV-cache events (vLLM: --kv-events-config): what its cache holds is guessed from what was sent there"
	}
	var at []string
	for _, s := range streams {
		at = append(at, s.Events)
	}
	return "KV-cache events at " + strings.Join(at, ", ")
}
