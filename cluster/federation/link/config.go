package link

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/internal/strict"
)

// Config is the federation configuration file of one cluster. Paths are relative to the file.
type Config struct {
	Cluster    string `json:"cluster"`    // name of this cluster
	Region     string `json:"region"`     // where it is, for locality rules
	Zone       string `json:"zone"`       //
	SecretFile string `json:"secretFile"` // the federation's secret; "": no filters

	Listen   string `json:"listen"` // host:port for other clusters' replicas; "": asks are not accepted
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	CAFile   string `json:"caFile"` // CA of the clusters' certificates

	NATS *NATSConfig `json:"nats"`

	Lease  time.Duration `json:"lease"`
	Drain  time.Duration `json:"drain"`
	Rotate time.Duration `json:"rotate"`
	Blocks int           `json:"blocks"` // hot blocks kept per pool, each 256 bytes of prompt; default 1,000,000

	Exports []ExportConfig `json:"exports"`
	Peers   []PeerConfig   `json:"peers"`
	Use     UseConfig      `json:"use"`
}

// UseConfig configures which requests other clusters may serve, and the cost.
type UseConfig struct {
	Requests   string              `json:"requests"` // named (default), always or never
	Mode       string              `json:"mode"`     // parent (default) or endpoint
	Allow      []string            `json:"allow"`    // clusters, region:NAME or *; none: all
	Objectives map[string][]string `json:"objectives"`
	Egress     map[string]float64  `json:"egress"` // by class: seconds per gigabyte
}

// NATSConfig configures communication over NATS.
type NATSConfig struct {
	URLs        []string `json:"urls"`
	Prefix      string   `json:"prefix"` // of subjects; default grapevine.federation
	Credentials string   `json:"credentials"`
	NKey        string   `json:"nkey"`
	CAFile      string   `json:"caFile"`
	CertFile    string   `json:"certFile"`
	KeyFile     string   `json:"keyFile"`
}

// ExportConfig is one pool that other clusters may use.
type ExportConfig struct {
	Pool     string          `json:"pool"` // namespace/name
	Gateways []AddressConfig `json:"gateways"`
	EPPs     []AddressConfig `json:"epps"`
	Direct   bool            `json:"direct"` // other clusters can reach the endpoints directly
	Egress   string          `json:"egress"` // class of traffic that leaves this cluster
	Money    float64         `json:"money"`  // per million tokens
}

// AddressConfig is where to connect.
type AddressConfig struct {
	Address string `json:"address"` // host:port
	SNI     string `json:"sni"`
	Host    string `json:"host"`
}

// PeerConfig is one other cluster.
type PeerConfig struct {
	Name          string   `json:"name"`
	Certificate   string   `json:"certificate"`   // DNS name or URI in its certificate; default: Name
	Addresses     []string `json:"addresses"`     // host:port of its replicas; a name stands for all its addresses
	Export        []string `json:"export"`        // patterns of namespace/name that it may see; default none
	Accept        []string `json:"accept"`        // patterns of its pools that are accepted here; default none
	KeyFile       string   `json:"keyFile"`       // secret of the pair; required with NATS
	Region        string   `json:"region"`        // overrides the region that it announces; "": use that
	PickTokenFile string   `json:"pickTokenFile"` // token for its pick listeners; "": they are not used
	Rate          int      `json:"rate"`          // bytes per second of filters, per direction; default 1 MiB
	MaxFilter     int      `json:"maxFilter"`     // total bytes of its filters; default 32 MiB
}

// maxPeers is the maximum number of other clusters.
const maxPeers = 256

// ReadConfig reads and validates a file.
func ReadConfig(file string) (*Config, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("federation: %w", err)
	}
	c, err := ParseConfig(file, b)
	if err != nil {
		return nil, err
	}
	c.resolve(filepath.Dir(file))
	return c, nil
}

// ParseConfig parses and validates a file's content. Errors contain their position.
func ParseConfig(name string, b []byte) (*Config, error) {
	root, report := strict.Parse(name, b)
	c := &Config{}
	if err := root.Decode(c); err != nil || report.Len() > 0 {
		return nil, report.Problems().Err()
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// resolve makes paths relative to a folder.
func (c *Config) resolve(dir string) {
	list := []*string{&c.SecretFile, &c.CertFile, &c.KeyFile, &c.CAFile}
	if n := c.NATS; n != nil {
		list = append(list, &n.Credentials, &n.NKey, &n.CAFile, &n.CertFile, &n.KeyFile)
	}
	for i := range c.Peers {
		list = append(list, &c.Peers[i].KeyFile, &c.Peers[i].PickTokenFile)
	}
	for _, p := range list {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

func (c *Config) check() error {
	switch {
	case !validName(c.Cluster):
		return fmt.Errorf("cluster: %q is not a valid name: use letters, digits, dashes and dots", c.Cluster)
	case c.NATS == nil && !c.Standalone() && (c.CertFile == "" || c.KeyFile == "" || c.CAFile == ""):
		return errors.New("certFile, keyFile and caFile are required to authenticate clusters (or set nats)")
	case c.NATS != nil && len(c.NATS.URLs) == 0:
		return errors.New("nats.urls: at least one URL is required")
	case c.NATS != nil && c.Listen != "":
		return errors.New("listen and nats cannot be used together")
	case c.Lease != 0 && (c.Lease < time.Second || c.Lease > 5*time.Minute):
		return errors.New("lease: must be from 1s to 5m")
	case c.Drain < 0 || c.Rotate < 0 || c.Rotate > 0 && c.Rotate < time.Minute:
		return errors.New("drain, rotate: too short")
	case c.Blocks < 0 || c.Blocks > filter.MaxHot:
		return fmt.Errorf("blocks: must be from 0 to %d", filter.MaxHot)
	case len(c.Peers) > maxPeers:
		return fmt.Errorf("peers: at most %d", maxPeers)
	}
	if u := &c.Use; !slices.Contains([]string{"", "named", "always", "never"}, u.Requests) || !slices.Contains([]string{"", "parent", "endpoint"}, u.Mode) {
		return errors.New("use: requests must be named, always or never, and mode parent or endpoint")
	}
	for class, price := range c.Use.Egress {
		if !(price >= 0) {
			return fmt.Errorf("use.egress: %q: must be seconds per gigabyte, 0 or more", class)
		}
	}
	seen := map[string]bool{}
	for i := range c.Exports {
		e := &c.Exports[i]
		if _, err := ParsePool(e.Pool); err != nil || seen[e.Pool] {
			return fmt.Errorf("exports[%d].pool: %q is not namespace/name, or is a duplicate", i, e.Pool)
		}
		seen[e.Pool] = true
	}
	if err := c.checkPeers(); err != nil {
		return err
	}
	return c.checkRules()
}

// checkRules rejects rule entries that match no cluster, which would block requests silently, and
// rules without entries, which allow every cluster.
func (c *Config) checkRules() error {
	names := map[string]bool{"*": true, c.Cluster: true}
	for i := range c.Peers {
		names[c.Peers[i].Name] = true
	}
	check := func(field string, list []string) error {
		for _, entry := range list {
			region, isRegion := strings.CutPrefix(entry, "region:")
			if isRegion && region != "" && region == strings.TrimSpace(region) || names[entry] || c.Standalone() && validName(entry) {
				continue
			}
			return fmt.Errorf("%s: %q is not a cluster in this file, region:NAME or *", field, entry)
		}
		return nil
	}
	if err := check("use.allow", c.Use.Allow); err != nil {
		return err
	}
	for _, objective := range slices.Sorted(maps.Keys(c.Use.Objectives)) {
		list, field := c.Use.Objectives[objective], "use.objectives: "+objective
		if len(list) == 0 {
			return fmt.Errorf("%s: no cluster is listed; use * for all", field)
		}
		if err := check(field, list); err != nil {
			return err
		}
	}
	return nil
}

// Regions returns the other clusters' regions in the file, which override the announced ones.
func (c *Config) Regions() map[string]string {
	regions := map[string]string{}
	for i := range c.Peers {
		if p := &c.Peers[i]; p.Region != "" {
			regions[p.Name] = p.Region
		}
	}
	return regions
}

// Standalone reports whether the file configures no other cluster. Nothing is exchanged then, but the
// rules still apply.
func (c *Config) Standalone() bool { return len(c.Peers) == 0 && c.Listen == "" && c.NATS == nil }

func (c *Config) checkPeers() error {
	seen := map[string]bool{c.Cluster: true}
	for i := range c.Peers {
		p := &c.Peers[i]
		switch {
		case !validName(p.Name) || seen[p.Name]:
			return fmt.Errorf("peers[%d].name: %q is not a valid name, is a duplicate, or is this cluster's own", i, p.Name)
		case c.NATS != nil && p.KeyFile == "":
			return fmt.Errorf("peers[%d] (%s): keyFile is required with nats: the pair's key authenticates messages", i, p.Name)
		case c.NATS == nil && len(p.Addresses) == 0 && c.Listen == "":
			return fmt.Errorf("peers[%d] (%s): no addresses, and no listener for its requests", i, p.Name)
		case p.Rate < 0 || p.Rate > 0 && p.Rate < 4096:
			return fmt.Errorf("peers[%d] (%s): rate: must be at least 4096 bytes per second", i, p.Name)
		case p.MaxFilter < 0:
			return fmt.Errorf("peers[%d] (%s): maxFilter: bytes", i, p.Name)
		}
		seen[p.Name] = true
		for _, pattern := range append(append([]string(nil), p.Export...), p.Accept...) {
			if _, err := path.Match(pattern, ""); err != nil || !strings.Contains(pattern, "/") {
				return fmt.Errorf("peers[%d] (%s): %q is not a pattern of namespace/name", i, p.Name, pattern)
			}
		}
	}
	return nil
}

// cleanName converts a replica's name to a valid part of a subject.
func cleanName(s string) string {
	s = strings.Map(func(c rune) rune {
		if validName(string(c)) {
			return c
		}
		return '-'
	}, s)
	return s[:min(len(s), 63)]
}

// validName reports whether a name can be part of a subject, a log line and a certificate.
func validName(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	return strings.IndexFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	}) < 0
}

var errPool = errors.New("federation: pool must be namespace/name")

// maxPoolName is the longest namespace or name that is sent to other clusters.
const maxPoolName = 253

// ParsePool parses namespace/name.
func ParsePool(s string) (federation.PoolKey, error) {
	ns, name, ok := strings.Cut(s, "/")
	if !ok || ns == "" || name == "" || strings.Contains(name, "/") || len(ns) > maxPoolName || len(name) > maxPoolName {
		return federation.PoolKey{}, errPool
	}
	return federation.PoolKey{Namespace: ns, Name: name}, nil
}

// Export returns the export as configured. The caller fills in the rest.
func (c *Config) Export(e *ExportConfig) federation.Export {
	pool, _ := ParsePool(e.Pool)
	x := federation.Export{Pool: pool, Region: c.Region, Zone: c.Zone, Price: federation.Price{Egress: e.Egress, Money: e.Money}}
	for _, a := range e.Gateways {
		x.Gateways = append(x.Gateways, federation.Address{HostPort: a.Address, SNI: a.SNI, Host: a.Host})
	}
	for _, a := range e.EPPs {
		x.EPPs = append(x.EPPs, federation.Address{HostPort: a.Address, SNI: a.SNI, Host: a.Host})
	}
	return x
}

// readSecret reads a secret: one line of base64, at least 16 bytes.
func readSecret(file string) (*filter.Secret, []byte, error) {
	if file == "" {
		return nil, nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("federation: %w", err)
	}
	return parseSecret(file, string(b))
}

func parseSecret(file, text string) (*filter.Secret, []byte, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, nil, fmt.Errorf("federation: %s: secret must be one line of base64: %w", file, err)
	}
	s, err := filter.NewSecret(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, raw, nil
}

// readSecrets reads the federation's secrets, one per line: the first is in use, the second is
// accepted too. It also returns the file's content.
func readSecrets(file string) (use, also *filter.Secret, text string, err error) {
	if file == "" {
		return nil, nil, "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, "", fmt.Errorf("federation: %w", err)
	}
	lines := strings.Fields(string(b))
	if len(lines) == 0 || len(lines) > 2 {
		return nil, nil, "", fmt.Errorf("federation: %s: %d secrets: want one, or two during a rotation", file, len(lines))
	}
	if use, _, err = parseSecret(file, lines[0]); err == nil && len(lines) == 2 {
		also, _, err = parseSecret(file, lines[1])
	}
	return use, also, string(b), err
}
