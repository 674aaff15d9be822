package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/record"
)

// recordFlags are the flags of record.
type recordFlags struct {
	admins        []string
	output        string
	duration      time.Duration
	bytesPerToken float64
	bodies        bool
}

func newRecord() *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Record decisions and their outcomes as a trace for replay",
		Long: `Follows one or more running replicas and writes one JSON object for each request that
started and ended during the recording: timestamp (milliseconds from the start), input_length,
output_length, hash_ids (one for each 512 tokens of the prompt, keyed hashes, no text),
session_id (a keyed hash), and endpoint, status, ttft_ms, took_ms, cached_tokens. Name all
replicas of a group: each one sees only its own requests. Their hashes agree if they use the
same --secret-file.

Answer lengths and first-token times are only known from response bodies. With --bodies, the
replicas request all of them from the proxy during the recording; otherwise they see only the
usual sample. The recording ends after --duration, once the open requests have ended, or with
Ctrl-C.`,
		Example: `  grapevine-lab record --output trace.jsonl --duration 10m
  grapevine-lab record --admin https://10.0.1.7:9091 --admin https://10.0.1.8:9091 --output trace.jsonl --duration 1h
  grapevine-lab replay --trace trace.jsonl --rate 2 --policy default --policy unified`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.admins, "admin", []string{"127.0.0.1:9090"}, "admin address of a replica (repeatable)")
	fl.StringVarP(&f.output, "output", "o", "", "file to write (required); - for standard output")
	fl.DurationVar(&f.duration, "duration", 0, "length of the recording; 0 records until interrupted")
	fl.Float64Var(&f.bytesPerToken, "bytes-per-token", 0, "bytes of raw prompt for each token, by which hash_ids are cut and prompts measured that no engine counted; equal for recordings that are to be joined (default: by what engines count)")
	fl.BoolVar(&f.bodies, "bodies", false, "request all response bodies from the proxy during the recording")
	return cmd
}

func (f *recordFlags) run(cmd *cobra.Command) error {
	switch {
	case f.output == "":
		return cli.UsageError{Err: errors.New("--output is required")}
	case len(f.admins) == 0:
		return cli.UsageError{Err: errors.New("--admin names no replica")}
	case f.bytesPerToken != 0 && !(f.bytesPerToken >= .5 && f.bytesPerToken <= 64):
		return cli.UsageError{Err: fmt.Errorf("--bytes-per-token %g: want 0.5 to 64", f.bytesPerToken)}
	case f.duration < 0:
		return cli.UsageError{Err: fmt.Errorf("--duration %s is negative", f.duration)}
	}
	out, done, err := f.open(cmd.OutOrStdout())
	if err != nil {
		return err
	}
	summary, err := record.Run(cmd.Context(), record.Options{
		Admins: f.admins, Duration: f.duration, Bodies: f.bodies, BytesPerToken: f.bytesPerToken, Out: out,
		Begun: func() { fmt.Fprintf(cmd.ErrOrStderr(), "recording from %s\n", strings.Join(f.admins, ", ")) },
	})
	err = errors.Join(cli.UsageIf(err, admin.ErrAddress), done())
	fmt.Fprintln(cmd.ErrOrStderr(), summary)
	return err
}

func (f *recordFlags) open(stdout io.Writer) (io.Writer, func() error, error) {
	if f.output == "-" {
		return stdout, func() error { return nil }, nil
	}
	file, err := os.Create(f.output)
	if err != nil {
		return nil, nil, err
	}
	return file, file.Close, nil
}
