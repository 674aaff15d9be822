package commands

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/cli"
)

// Flags that cannot work, or have no effect, are usage errors that name the flag.
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
	f("--cluster-join a:1", "--cluster-join has no effect with --cluster none: it requires --cluster gossip")
	f("--cluster-peers-service a", "--cluster-peers-service has no effect with --cluster none: it requires --cluster gossip")
	f("--cluster nats --cluster-bind :1 --nats a", "--cluster-bind has no effect with --cluster nats")
	f("--cluster gossip --nats a", "--nats has no effect with --cluster gossip: it requires --cluster nats")
	f("--cluster gossip --nats-nkey x", "--nats-nkey has no effect")
	f("--share mesh", "requires --cluster gossip or nats")
	f("--cluster-key-file key", "--cluster-key-file has no effect")
	f("--cluster nats", "requires --nats URL")
	f("--cluster gossip --cluster-label=", "--cluster-label is empty")
	f("--ready-timeout -1s", "--ready-timeout -1s: want more than 0")
	f("--drain 0s", "--drain 0s: want more than 0")
	f("--model a", "want NAME=FOLDER")
	f("--model-alias a=b", "no --model a")
}
