package commands

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	admin     string
	pool      string
	output    cli.Output
	version   string
	endpoints string
	envoy     string
	cert, key string
	hosts     []string
	listen    []string
}

// Limits of doctor's checks.
const (
	doctorDial    = 2 * time.Second
	doctorSkew    = 2 * time.Second
	doctorFiles   = 16384
	doctorExpiry  = 7 * 24 * time.Hour
	doctorMaxFile = 8 << 20
)

func newDoctor(p Program) *cobra.Command {
	f := doctorFlags{version: p.Version}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the host and the installation",
		Long: `Checks what a replica depends on, from the host or pod where it is started: clocks, file
limits, names, ports, certificates, the Envoy configuration, versions, and connections to
engines, their event streams and the other replicas. With a running replica at --admin, its
endpoints and members are checked, and its own problems are listed. Each finding has a code;
grapevine help CODE says what to do. The exit code is 1 if a finding needs action.

Engines get one GET /health each, and no prompts.`,
		Example: `  grapevine doctor
  grapevine doctor --endpoints endpoints.yaml --tls-cert tls.crt --tls-key tls.key --envoy envoy.yaml
  grapevine doctor --admin 10.0.1.7:9090 -o json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.pool, "pool", "", "pool, of a replica that serves several")
	fl.StringVar(&f.admin, "admin", "127.0.0.1:9090", "admin address of a replica; without a replica there, the other checks run")
	cli.AddOutput(cmd, &f.output)
	fl.StringVar(&f.endpoints, "endpoints", "", "endpoints file whose names and engines are checked")
	fl.StringVar(&f.envoy, "envoy", "", "Envoy configuration to check")
	fl.StringVar(&f.cert, "tls-cert", "", "certificate file to check")
	fl.StringVar(&f.key, "tls-key", "", "its key file")
	fl.StringSliceVar(&f.hosts, "host", nil, "further host name that must resolve, such as that of --cluster-join (repeatable)")
	fl.StringSliceVar(&f.listen, "listen", []string{"0.0.0.0:9002", "0.0.0.0:9003", "127.0.0.1:9090"}, "addresses that a replica is going to listen on; checked if no replica runs")
	return cmd
}

// finding is one result of doctor. Code is "" for a check that passed.
type finding struct {
	Code   problems.Code `json:"code,omitempty"`
	Check  string        `json:"check"`
	Detail string        `json:"detail"`
}

// doctor runs checks and collects their findings.
type doctor struct {
	mu    sync.Mutex
	found []finding
}

func (d *doctor) add(code problems.Code, check, format string, a ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, finding{code, check, fmt.Sprintf(format, a...)})
}

func (d *doctor) ok(check, format string, a ...any) { d.add("", check, format, a...) }

func (f *doctorFlags) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	d := new(doctor)
	d.fileLimit()
	st := d.replica(ctx, f)
	if st == nil {
		d.ports(f.listen)
	}
	d.endpointsFile(ctx, f.endpoints)
	for _, h := range f.hosts {
		d.resolve(ctx, h)
	}
	d.certificate(f.cert, f.key, time.Now())
	if f.envoy != "" {
		d.envoy(ctx, f.envoy)
	}
	slices.SortStableFunc(d.found, func(a, b finding) int {
		if (a.Code == "") != (b.Code == "") {
			return cmp.Compare(b.Code, a.Code) // findings before passed checks
		}
		return cmp.Compare(a.Code, b.Code)
	})
	bad := slices.ContainsFunc(d.found, func(x finding) bool { return urgent(x.Code) })
	if !f.output.IsText() {
		if err := f.output.Write(cmd.OutOrStdout(), d.found); err != nil {
			return err
		}
	} else {
		writeFindings(cmd.OutOrStdout(), d.found)
	}
	if bad {
		return cli.ExitCode(1)
	}
	return nil
}

// urgent reports whether somebody has to act on a code.
func urgent(code problems.Code) bool {
	p, ok := problems.Lookup(string(code))
	return ok && p.Severity != problems.Notice
}

func writeFindings(w io.Writer, found []finding) {
	for _, x := range found {
		if x.Code == "" {
			fmt.Fprintf(w, "ok      %s: %s\n", x.Check, x.Detail)
			continue
		}
		p, _ := problems.Lookup(string(x.Code))
		fmt.Fprintf(w, "%s  %s: %s: %s\n", x.Code, x.Check, p.Title, x.Detail)
		if p.Severity != problems.Notice {
			fmt.Fprintf(w, "        do: %s\n", p.PlainActions()[0])
		}
	}
}

// fileLimit checks how many files and connections a process may have open.
func (d *doctor) fileLimit() {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		d.add(problems.FileLimit, "files", "%v", err)
		return
	}
	if l.Max < doctorFiles {
		d.add(problems.FileLimit, "files", "the limit is %d, want %d or more", l.Max, doctorFiles)
		return
	}
	d.ok("files", "the limit is %d", l.Max)
}

// replica checks a running replica and everything that it connects to. It returns nil if none
// answers.
func (d *doctor) replica(ctx context.Context, f *doctorFlags) *server.Status {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	a := adminFlags{admin: f.admin, pool: f.pool}
	var st server.Status
	sent := time.Now()
	header, err := a.getWithHeader(ctx, "/status", &st)
	if err != nil {
		if errors.Is(err, admin.ErrAddress) || f.admin != "127.0.0.1:9090" {
			d.add(problems.NoReplica, "replica", "%v", err)
		} else {
			d.ok("replica", "none runs at %s", f.admin)
		}
		return nil
	}
	d.clock(header.Get("Date"), sent, time.Now())
	d.versions(f.version, &st)
	for i := range st.Problems {
		p := &st.Problems[i]
		d.add(p.Code, "replica", "%s", p.Summary())
	}
	var wg sync.WaitGroup
	for i := range st.Endpoints {
		e := &st.Endpoints[i]
		wg.Go(func() { d.engine(ctx, e.Address) })
		for _, s := range e.Streams {
			wg.Go(func() { d.stream(ctx, e.Address, s.Events) })
		}
	}
	for _, m := range st.Members {
		if m.State != "self" {
			wg.Go(func() { d.peer(ctx, m.Name, m.Addr) })
		}
	}
	wg.Wait()
	return &st
}

// clock compares the replica's time with this host's. The header has whole seconds.
func (d *doctor) clock(date string, sent, received time.Time) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	skew := max(sent.Sub(at)-time.Second, at.Sub(received), 0)
	if skew > doctorSkew {
		d.add(problems.ClockSkew, "clock", "the replica's clock and this host's differ by %s", skew.Round(100*time.Millisecond))
		return
	}
	d.ok("clock", "the replica's clock agrees with this host's")
}

// versions compares the versions of this program, the replica and its peers.
func (d *doctor) versions(own string, st *server.Status) {
	names := map[string][]string{st.Version: {st.Name}}
	for _, m := range st.Members {
		if m.State != "self" && m.Version != "" {
			names[m.Version] = append(names[m.Version], m.Name)
		}
	}
	if st.Version != own {
		names[own] = append(names[own], "this program")
	}
	if len(names) == 1 {
		d.ok("versions", "all are %s", own)
		return
	}
	var list []string
	for v, who := range names {
		list = append(list, v+": "+strings.Join(who, ", "))
	}
	slices.Sort(list)
	d.add(problems.Versions, "versions", "%s", strings.Join(list, "; "))
}

// dial opens and closes a TCP connection.
func dial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, doctorDial)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// engine checks that an engine accepts connections and speaks HTTP.
func (d *doctor) engine(ctx context.Context, address string) {
	ctx, cancel := context.WithTimeout(ctx, doctorDial)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health", nil)
	if err != nil {
		d.add(problems.EngineUnreachable, "engine "+address, "%v", err)
		return
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}}).Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		d.add(problems.EngineUnreachable, "engine "+address, "%v", err)
		return
	}
	_ = resp.Body.Close()
	d.ok("engine "+address, "answers %d", resp.StatusCode)
}

// stream checks that the port of an event stream accepts connections. Streams for which the engine
// connects to the replica are left out.
func (d *doctor) stream(ctx context.Context, engine, events string) {
	address, ok := strings.CutPrefix(events, "tcp://")
	if !ok {
		return
	}
	if err := dial(ctx, address); err != nil {
		d.add(problems.StreamUnreachable, "events of "+engine, "%v", err)
		return
	}
	d.ok("events of "+engine, "%s accepts connections", address)
}

// peer checks that a member's stream port accepts connections.
func (d *doctor) peer(ctx context.Context, name, addr string) {
	address, _, _ := strings.Cut(addr, " ")
	if _, _, err := net.SplitHostPort(address); err != nil {
		return // members over NATS have no address of their own
	}
	if err := dial(ctx, address); err != nil {
		d.add(problems.PeerUnreachable, "replica "+name, "%v", err)
		return
	}
	d.ok("replica "+name, "%s accepts connections", address)
}

// ports checks that a replica could listen.
func (d *doctor) ports(addresses []string) {
	for _, a := range addresses {
		lis, err := net.Listen("tcp", a)
		if err != nil {
			d.add(problems.PortInUse, "port", "%v", err)
			continue
		}
		_ = lis.Close()
		d.ok("port", "%s is free", a)
	}
}

// endpointsFile checks the names and engines of an endpoints file.
func (d *doctor) endpointsFile(ctx context.Context, path string) {
	if path == "" {
		return
	}
	list, found := discovery.Load(path)
	for _, p := range found {
		d.add(problems.StaleList, "endpoints file", "%s", p.String())
	}
	var wg sync.WaitGroup
	for _, e := range list {
		wg.Go(func() {
			if d.resolve(ctx, e.Host) {
				d.engine(ctx, net.JoinHostPort(e.Host, fmt.Sprint(e.Port)))
			}
		})
	}
	wg.Wait()
}

// resolve checks that a host name has an address. It reports whether it has.
func (d *doctor) resolve(ctx context.Context, host string) bool {
	if net.ParseIP(host) != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, doctorDial)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		d.add(problems.Unresolved, "name "+host, "%v", err)
		return false
	}
	d.ok("name "+host, "%s", strings.Join(addresses, ", "))
	return true
}

// certificate checks that a certificate and its key belong together, and when the certificate expires.
func (d *doctor) certificate(cert, key string, now time.Time) {
	if cert == "" && key == "" {
		return
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		d.add(problems.BadCertificate, "certificate", "%v", err)
		return
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	switch {
	case err != nil:
		d.add(problems.BadCertificate, "certificate", "%v", err)
	case now.Before(leaf.NotBefore):
		d.add(problems.BadCertificate, "certificate", "is valid from %s", leaf.NotBefore.Format(time.DateTime))
	case now.Add(doctorExpiry).After(leaf.NotAfter):
		d.add(problems.BadCertificate, "certificate", "expires at %s", leaf.NotAfter.Format(time.DateTime))
	default:
		d.ok("certificate", "is valid until %s", leaf.NotAfter.Format(time.DateTime))
	}
}

// extProcFilter is the name of the filter that asks a picker.
const extProcFilter = "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor"

// envoy checks an Envoy configuration: it has the filter that asks a picker, and the addresses of
// the filter's cluster accept connections.
func (d *doctor) envoy(ctx context.Context, path string) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) > doctorMaxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, doctorMaxFile)
	}
	var doc any
	if err == nil {
		err = yaml.NewDecoder(bytes.NewReader(b)).Decode(&doc)
	}
	if err != nil {
		d.add(problems.EnvoyConfig, "Envoy", "%v", err)
		return
	}
	clusters := map[string]bool{}
	walk(doc, func(m map[string]any) {
		if kind, _ := m["@type"].(string); strings.HasSuffix(kind, extProcFilter) {
			walk(m, func(m map[string]any) {
				if name, ok := m["cluster_name"].(string); ok {
					clusters[name] = true
				}
			})
		}
	})
	if len(clusters) == 0 {
		d.add(problems.EnvoyConfig, "Envoy", "%s has no ext_proc filter with a cluster", path)
		return
	}
	addresses := map[string]bool{}
	walk(doc, func(m map[string]any) {
		if name, _ := m["name"].(string); clusters[name] && m["load_assignment"] != nil {
			walk(m["load_assignment"], func(m map[string]any) {
				if host, ok := m["address"].(string); ok && m["port_value"] != nil {
					addresses[net.JoinHostPort(host, fmt.Sprint(m["port_value"]))] = true
				}
			})
		}
	})
	if len(addresses) == 0 {
		d.ok("Envoy", "%s asks a picker whose addresses come from elsewhere", path)
	}
	for a := range addresses {
		if err := dial(ctx, a); err != nil {
			d.add(problems.EnvoyConfig, "Envoy", "its picker %s: %v", a, err)
		} else {
			d.ok("Envoy", "its picker %s accepts connections", a)
		}
	}
}

// walk calls visit for every mapping of a decoded document.
func walk(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, inner := range v {
			walk(inner, visit)
		}
	case []any:
		for _, inner := range v {
			walk(inner, visit)
		}
	}
}
