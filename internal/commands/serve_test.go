package commands

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/cli"
)

// Flags that cannot work, or do nothing, are a wrong command line that names them.
func TestServeRefusesFlags(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		cmd := newServe(standard)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append([]string{"--endpoints", "none.yaml"}, strings.Split(line, " ")...))
		err := cmd.ExecuteContext(t.Context())
		if wrong := (cli.UsageError{}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", line, err, want)
		}
	}
	f("--cluster mesh", `--cluster "mesh": want none, gossip or nats`)
	f("--cluster-join a:1", "--cluster-join does nothing with --cluster none: want --cluster gossip")
	f("--cluster-peers-service a", "--cluster-peers-service does nothing with --cluster none: want --cluster gossip")
	f("--cluster nats --cluster-bind :1 --nats a", "--cluster-bind does nothing with --cluster nats")
	f("--cluster gossip --nats a", "--nats does nothing with --cluster gossip: want --cluster nats")
	f("--cluster gossip --nats-nkey x", "--nats-nkey does nothing")
	f("--share mesh", "want --cluster gossip or nats")
	f("--cluster-key-file key", "--cluster-key-file does nothing")
	f("--cluster nats", "wants --nats URL")
	f("--cluster gossip --cluster-label=", "--cluster-label is empty")
	f("--ready-timeout -1s", "--ready-timeout -1s: want more than 0")
	f("--drain 0s", "--drain 0s: want more than 0")
	f("--model a", "want NAME=FOLDER")
	f("--model-alias a=b", "no --model a")
}
