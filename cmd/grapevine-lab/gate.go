package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/gate"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// gateFlags are the flags of gate.
type gateFlags struct {
	baseline, rows, reason, keep string
	full, store                  bool
	rounds                       int
}

func newGate() *cobra.Command {
	var f gateFlags
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Compare the cost of requests with stored figures",
		Long: `Measures the CPU time of requests next to a no-op external-processing server on the same
grpc-go, in short slices in random order, and compares the medians of the ratios with stored
figures. A row that looks more than 10% worse is compared directly with a build of the stored
commit, because a loaded machine raises ratios. The exit code is 1 if it is still 10% worse.

With --store, it writes the measured figures instead. An increased figure requires --reason.`,
		Example: `  grapevine-lab gate
  grapevine-lab gate --full --rows '^8x8/'
  grapevine-lab gate --full --store --reason 'TLS 1.3 only'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.baseline, "baseline", "internal/lab/gate/baseline.json", "file with the stored figures")
	fl.StringVar(&f.rows, "rows", "", "regular expression: measure only rows whose names match")
	fl.BoolVar(&f.full, "full", false, "measure all rows, not only the short form")
	fl.BoolVar(&f.store, "store", false, "write the measured figures to the baseline")
	fl.StringVar(&f.reason, "reason", "", "reason for increased figures")
	fl.IntVar(&f.rounds, "rounds", 24, "rounds of slices for each row")
	fl.StringVar(&f.keep, "logs", "", "folder for the logs of the started programs")
	return cmd
}

// newNoop returns the server that measurements are compared with.
func newNoop() *cobra.Command {
	var listen, destination string
	cmd := &cobra.Command{
		Use:     "noop",
		Short:   "Run a no-op external-processing server",
		Long:    "Answers every external-processing message without reading it, as a baseline for\nmeasurements.",
		Hidden:  true,
		Example: "  grapevine-lab noop --listen 127.0.0.1:9002 --destination 127.0.0.1:8000",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return gate.ServeNoop(cmd.Context(), listen, destination)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9002", "listener, with TLS")
	cmd.Flags().StringVar(&destination, "destination", "127.0.0.1:8000", "ip:port that every request is sent to")
	return cmd
}

func (f *gateFlags) run(ctx context.Context, out io.Writer) error {
	o := gate.Options{Short: !f.full, Rounds: f.rounds, Out: out}
	if err := f.configure(&o); err != nil {
		return err
	}
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "grapevine-gate-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.Dir = dir
	}
	stored, err := gate.ReadBaseline(f.baseline)
	if errors.Is(err, fs.ErrNotExist) && f.store {
		stored, err = &gate.Baseline{}, nil
	}
	if err != nil {
		return err
	}
	if err := f.unexplained(ctx); err != nil {
		return err
	}
	if !f.store {
		o.Stored = stored
		o.Reference = func(ctx context.Context) (string, error) { return build(ctx, stored.Commit) }
	}
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil && f.store {
		return fmt.Errorf("figures are stored with the commit that produced them: %w", err)
	}
	start := time.Now()
	m, err := gate.Run(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d rows in %s\n", len(m.Rows), time.Since(start).Round(time.Second))
	if f.store {
		return f.write(strings.TrimSpace(string(commit)), stored, m)
	}
	worse, functions := stored.Compare(m)
	if len(worse) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\nworse than %s by more than %.0f%% (%s):\n  %s\n", f.baseline, 100*gate.Tolerance, stored.Commit, strings.Join(worse, "\n  "))
	if len(functions) > 0 {
		fmt.Fprintf(out, "functions whose CPU time grew, as a share of the CPU time of one request at the stored commit:\n  %s\n", strings.Join(functions, "\n  "))
	}
	return cli.ExitCode(1)
}

var (
	commitName = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
	errCommit  = errors.New("the baseline names no commit; measure it anew with --store")
)

// build returns the program grapevine as of a commit, next to the grapevine-lab of that commit. It
// builds both once, into the cache folder.
func build(ctx context.Context, commit string) (string, error) {
	if !commitName.MatchString(commit) { // its folder's parent is removed below
		return "", fmt.Errorf("%w: %q", errCommit, commit)
	}
	dir := filepath.Join(parts.Cache(), "reference", commit)
	path := filepath.Join(dir, "grapevine")
	if _, err := os.Stat(filepath.Join(dir, "grapevine-lab")); err == nil {
		return path, nil
	}
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil { // remove earlier commits
		return "", err
	}
	source, err := os.MkdirTemp("", "grapevine-reference-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(source)
	archive := exec.CommandContext(ctx, "git", "archive", "--format=tar", commit)
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", source)
	if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
		return "", err
	}
	if err := unpack.Start(); err != nil {
		return "", err
	}
	if err := errors.Join(archive.Run(), unpack.Wait()); err != nil {
		return "", fmt.Errorf("the stored commit %s is not in this clone: %w", commit, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	compile := exec.CommandContext(ctx, "go", "build", "-C", source, "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", dir+string(filepath.Separator), "./cmd/grapevine", "./cmd/grapevine-lab")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build of commit %s: %w\n%s", commit, err, out)
	}
	return path, nil
}

// configure finds programs and files.
func (f *gateFlags) configure(o *gate.Options) (err error) {
	if o.Self, err = picker(); err != nil {
		return err
	}
	if o.Lab, err = os.Executable(); err != nil {
		return err
	}
	o.Model = filepath.Join(parts.Cache(), "models", "qwen3")
	if _, err := os.Stat(o.Model); err != nil {
		return fmt.Errorf("the model's files are missing (run make setup): %w", err)
	}
	if f.full {
		if o.Envoy, err = parts.EnvoyPath(); err != nil {
			return err
		}
	}
	if f.rows != "" {
		if o.Rows, err = regexp.Compile(f.rows); err != nil {
			return cli.UsageError{Err: fmt.Errorf("--rows: %w", err)}
		}
	}
	o.Dir = f.keep
	return nil
}

// unexplained returns an error if the last change of the baseline raised a figure without a
// reason. It returns nil where the history is missing.
func (f *gateFlags) unexplained(ctx context.Context) error {
	now, err := os.ReadFile(f.baseline)
	if err != nil {
		return nil // a first baseline
	}
	list, err := exec.CommandContext(ctx, "git", "log", "-2", "--format=%H", "--", f.baseline).Output()
	commits := strings.Fields(string(list))
	if err != nil || len(commits) == 0 {
		return nil
	}
	earlier := commits[len(commits)-1]
	if same, err := exec.CommandContext(ctx, "git", "show", commits[0]+":./"+f.baseline).Output(); err == nil && string(same) != string(now) {
		earlier = commits[0] // the change is uncommitted
	}
	was, err := exec.CommandContext(ctx, "git", "show", earlier+":./"+f.baseline).Output()
	if err != nil {
		return nil
	}
	return gate.Raised(now, was)
}

// write stores the measured figures.
func (f *gateFlags) write(commit string, stored *gate.Baseline, m gate.Measured) error {
	load, _ := os.ReadFile("/proc/loadavg")
	machine := fmt.Sprintf("%d CPUs, load %s", runtime.NumCPU(), strings.Join(strings.Fields(string(load))[:min(3, len(strings.Fields(string(load))))], " "))
	if err := stored.Store(m, commit, machine, f.reason); err != nil {
		return err
	}
	return stored.Write(f.baseline)
}
