package commands

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestInvalidKubeFlags: errors of pool flags name the flag.
func TestInvalidKubeFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--pod-ip-family=ipv5": `--pod-ip-family: want ipv4 or ipv6, not "ipv5"`,
		"--pool-guard=-1s":     "--pool-guard: must not be negative",
	} {
		var k kubeFlags
		fl := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		k.add(fl)
		if err := fl.Parse([]string{"--pool-name=p", flag}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.source(fl.Changed, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", flag, err, want)
		}
	}
}
