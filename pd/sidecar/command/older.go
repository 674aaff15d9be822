package command

import (
	"cmp"
	"strings"

	"github.com/spf13/pflag"
)

// olderFlags are flags of older routing sidecars that manifests still use.
type olderFlags struct {
	connector         string
	useTLS, notVerify [3]bool // by stage
	poolNamespace     string
	poolName          string
	verbosity         string
	zap               [5]string
}

// stages are the legs that may use TLS.
var stages = [3]string{"prefiller", "decoder", "encoder"}

// register registers the flags, hidden from the help.
func (o *olderFlags) register(fl *pflag.FlagSet) {
	hidden := func(name string) { _ = fl.MarkHidden(name) } // the flag exists
	for i, stage := range stages {
		fl.BoolVar(&o.useTLS[i], stage+"-use-tls", false, "older form of --enable-tls "+stage)
		fl.BoolVar(&o.notVerify[i], stage+"-tls-insecure-skip-verify", false, "older form of --tls-insecure-skip-verify "+stage)
		hidden(stage + "-use-tls")
		hidden(stage + "-tls-insecure-skip-verify")
	}
	for _, f := range []struct {
		into       *string
		name, says string
	}{
		{&o.connector, "connector", "older name of --kv-connector"},
		{&o.poolNamespace, "inference-pool-namespace", "see --enable-ssrf-protection"},
		{&o.poolName, "inference-pool-name", "see --enable-ssrf-protection"},
		{&o.verbosity, "v", "accepted; see --log-level"},
		{&o.zap[0], "zap-encoder", "json: as --log-format json"},
		{&o.zap[1], "zap-log-level", "debug, info or error: as --log-level"},
		{&o.zap[2], "zap-devel", "accepted"},
		{&o.zap[3], "zap-stacktrace-level", "accepted"},
		{&o.zap[4], "zap-time-encoding", "accepted"},
	} {
		fl.StringVar(f.into, f.name, "", f.says)
		hidden(f.name)
	}
	fl.Lookup("zap-devel").NoOptDefVal = "true"
}

// apply applies the older flags to the newer ones.
func (o *olderFlags) apply(f *flags) {
	if !f.given("kv-connector") {
		f.connector = cmp.Or(o.connector, f.connector)
	}
	for i, stage := range stages {
		if o.useTLS[i] {
			f.tlsStages = append(f.tlsStages, stage)
		}
		if o.notVerify[i] {
			f.more.noVerify = append(f.more.noVerify, stage)
		}
	}
	if o.zap[0] == "json" && !f.given("log-format") {
		f.logFormat = "json"
	}
	switch level := o.zap[1]; level {
	case "debug", "info", "error":
		if !f.given("log-level") {
			f.logLevel = level
		}
	}
}

// NormalizeDashes converts single-dash flags, as in Go's flag package, to double-dash flags.
func NormalizeDashes(args []string) []string {
	out := append([]string(nil), args...)
	for i, a := range out {
		if a == "--" {
			break
		}
		if len(a) > 2 && a[0] == '-' && a[1] != '-' && !strings.ContainsRune("0123456789.", rune(a[1])) {
			out[i] = "-" + a
		}
	}
	return out
}
