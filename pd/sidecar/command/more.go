package command

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/pd/sidecar"
)

// moreFlags are the flags for specific connectors, and equivalents of other sidecars' flags.
type moreFlags struct {
	mooncakePort int
	encoder      string
	write        sidecar.Write
	writeMode    bool
	writeDP      int
	writeLocal   int
	writeWait    time.Duration
	writeHosts   [2][]string
	sample       bool
	idleConns    int
	noVerify     []string
	metricsPort  int
	config, file string

	retries, chunk  int
	backoff         time.Duration
	tracing, guard  bool
	pool, poolGroup string
	older           olderFlags
}

func (m *moreFlags) register(fl *pflag.FlagSet, o *sidecar.Options) {
	fl.IntVar(&m.mooncakePort, "mooncake-bootstrap-port", 8998, "mooncake: bootstrap port of prefill engines (default also from MOONCAKE_BOOTSTRAP_PORT)")
	fl.IntVar(&o.P2PPort, "p2p-connector-port", 7777, "offloading: port of engines' peer-to-peer tiers, + the rank (default also from P2P_CONNECTOR_PORT)")
	fl.BoolVar(&o.RoomHeaders, "sglang-room-headers", false, "sglang: name rooms in headers and leave bodies as they are; engines need SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES=1")
	fl.BoolVar(&o.P2PPull, "enable-p2p-pull", false, "nixlv2: fetch the blocks that the picker locates at another engine")
	fl.StringVar(&m.encoder, "ec-connector", "", "transfer protocol of encoded images and sound: ec-nixl or ec-example")
	fl.BoolVar(&m.writeMode, "moriio-write-mode", false, "nixlv2: prefill engines write into decode engines (MoRI-IO)")
	fl.BoolVar(&m.write.Parallel, "moriio-parallel-dispatch", false, "with --moriio-write-mode: send both legs at the same time")
	fl.StringVar(&m.write.Local, "moriio-local-pod-ip", "", "with --moriio-write-mode: address of this pod (default from POD_IP)")
	fl.IntVar(&m.write.Notify[0], "moriio-decode-notify-port", 61005, "with --moriio-write-mode")
	fl.IntVar(&m.write.Notify[1], "moriio-prefill-notify-port", 61005, "with --moriio-write-mode")
	fl.IntVar(&m.write.Handshake[0], "moriio-decode-handshake-port", 6301, "with --moriio-write-mode")
	fl.IntVar(&m.write.Handshake[1], "moriio-prefill-handshake-port", 6301, "with --moriio-write-mode")
	fl.IntVar(&m.write.TP, "moriio-tp-size", 1, "with --moriio-write-mode: tensor-parallel size")
	fl.IntVar(&m.writeDP, "moriio-dp-size", 1, "with --moriio-write-mode: only 1 is supported")
	fl.IntVar(&m.writeLocal, "moriio-dp-size-local", 0, "with --moriio-write-mode: only 0 and 1 are supported")
	fl.DurationVar(&m.writeWait, "moriio-parallel-decode-wait-timeout", 0, "with --moriio-parallel-dispatch: another name of --prefill-timeout")
	fl.StringSliceVar(&m.writeHosts[0], "moriio-remote-hosts", nil, "with --moriio-write-mode: one at most")
	fl.StringSliceVar(&m.writeHosts[1], "moriio-decode-hosts", nil, "with --moriio-write-mode: one at most")
	fl.BoolVar(&m.sample, "enable-prefiller-sampling", false, "start with a random prefill engine from the picker's list")
	fl.IntVar(&m.idleConns, "max-idle-conns-per-host", 1024, "idle connections to keep per engine")
	fl.StringSliceVar(&m.noVerify, "tls-insecure-skip-verify", nil, "legs without certificate verification: prefiller, decoder, encoder; all of --enable-tls or none")
	fl.IntVar(&m.metricsPort, "metrics-port", 0, "port of /metrics on all addresses, instead of --metrics")
	fl.StringVar(&m.config, "configuration", "", "flags as YAML; the command line takes precedence")
	fl.StringVar(&m.file, "configuration-file", "", "YAML file with flags; the command line takes precedence")
	fl.IntVar(&m.retries, "prefill-max-retries", 0, "accepted; the engines that the picker names are tried, two at most")
	fl.DurationVar(&m.backoff, "prefill-retry-backoff", 0, "accepted; the next engine is tried at once")
	fl.BoolVar(&m.tracing, "tracing", false, "accepted; trace headers are always passed on")
	fl.IntVar(&m.chunk, "decode-chunk-size", 0, "only 0 is supported")
	fl.BoolVar(&m.guard, "enable-ssrf-protection", false, "with --inference-pool: not supported, use --verify-key-file")
	fl.StringVar(&m.pool, "inference-pool", "", "see --enable-ssrf-protection")
	m.older.register(fl)
	fl.StringVar(&m.poolGroup, "pool-group", "inference.networking.k8s.io", "see --enable-ssrf-protection")
}

// read applies flags from YAML that the command line does not set.
func (m *moreFlags) read(fl *pflag.FlagSet) error {
	text := []byte(m.config)
	if m.file != "" {
		if m.config != "" {
			return cli.UsageError{Err: errors.New("--configuration and --configuration-file cannot be used together")}
		}
		var err error
		if text, err = os.ReadFile(m.file); err != nil {
			return err
		}
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return cli.UsageError{Err: fmt.Errorf("--configuration: %w", err)}
	}
	for name, v := range values {
		flag := fl.Lookup(name)
		if flag == nil || strings.HasPrefix(name, "configuration") {
			return cli.UsageError{Err: fmt.Errorf("--configuration: there is no flag %s", name)}
		}
		if flag.Changed {
			continue
		}
		value := fmt.Sprint(v)
		if list, ok := v.([]any); ok {
			value = strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
		}
		if err := fl.Set(name, value); err != nil {
			return cli.UsageError{Err: fmt.Errorf("--configuration: %s: %w", name, err)}
		}
	}
	return nil
}

// complete fills in the options from the flags.
func (m *moreFlags) complete(f *flags) error {
	usage := func(format string, a ...any) error { return cli.UsageError{Err: fmt.Errorf(format, a...)} }
	switch {
	case m.guard || m.pool != "":
		return usage("--enable-ssrf-protection and --inference-pool are not supported: have the picker sign (--verify-key-file), or name engines (--endpoints, --allow)")
	case m.chunk != 0:
		return usage("--decode-chunk-size %d: only 0 is supported", m.chunk)
	case m.writeDP != 1:
		return usage("--moriio-dp-size %d: only 1 is supported", m.writeDP)
	case m.writeLocal < 0 || m.writeLocal > 1:
		return usage("--moriio-dp-size-local %d: only 0 and 1 are supported", m.writeLocal)
	case len(m.writeHosts[0]) > 1 || len(m.writeHosts[1]) > 1:
		return usage("--moriio-remote-hosts and --moriio-decode-hosts: engines of several pods are not supported")
	case m.write.Parallel && !m.writeMode:
		return usage("--moriio-parallel-dispatch needs --moriio-write-mode")
	case m.writeMode && f.connector != "nixlv2", f.o.P2PPull && f.connector != "nixlv2":
		return usage("--moriio-write-mode and --enable-p2p-pull are about --kv-connector nixlv2")
	}
	encoder, known := map[string]sidecar.Encoder{"": sidecar.NoEncoder, "ec-nixl": sidecar.EncodeNIXL, "ec-example": sidecar.EncodeStorage}[m.encoder]
	if !known {
		return usage("--ec-connector %q: want ec-nixl or ec-example", m.encoder)
	}
	f.o.Encoder, f.o.Sample = encoder, m.sample || os.Getenv("ENABLE_PREFILLER_SAMPLING") == "true"
	f.o.BasePort, f.o.Ranks = f.port, f.ranks
	for _, port := range []struct {
		env, flag string
		into      *int
	}{{"MOONCAKE_BOOTSTRAP_PORT", "mooncake-bootstrap-port", &m.mooncakePort}, {"P2P_CONNECTOR_PORT", "p2p-connector-port", &f.o.P2PPort}} {
		if v := os.Getenv(port.env); v != "" && !f.given(port.flag) {
			n, err := strconv.Atoi(v)
			if err != nil {
				return usage("%s: %w", port.env, err)
			}
			*port.into = n
		}
	}
	if f.connector == "mooncake" {
		f.o.BootstrapPort = m.mooncakePort
	}
	if m.write.Parallel && m.writeWait > 0 && !f.given("prefill-timeout") {
		f.o.Prefill = m.writeWait
	}
	if m.writeMode {
		if m.write.Local == "" {
			m.write.Local = os.Getenv("POD_IP")
		}
		f.o.Write = &m.write
	}
	if m.metricsPort > 0 {
		f.metrics = ":" + strconv.Itoa(m.metricsPort)
	}
	return m.transport(f)
}

// transport creates the shared transport of all legs.
func (m *moreFlags) transport(f *flags) error {
	t := sidecar.NewTransport(m.idleConns)
	if len(m.noVerify) > 0 {
		for _, stage := range f.tlsStages {
			if !slices.Contains(m.noVerify, stage) {
				return cli.UsageError{Err: fmt.Errorf("--tls-insecure-skip-verify: name all of --enable-tls, %s too, or none", stage)}
			}
		}
		f.log.Warn("certificates of engines are not verified (--tls-insecure-skip-verify)")
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // asked for
	}
	f.o.Transport = t
	return nil
}
