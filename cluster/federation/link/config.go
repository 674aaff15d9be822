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

// Config is the file that describes a federation to one of its clusters. Paths are
// relative to the file.
type Config struct {
	Cluster    string `json:"cluster"`    // name of this one
	Region     string `json:"region"`     // where it is, for rules of locality
	Zone       string `json:"zone"`       //
	SecretFile string `json:"secretFile"` // the federation's; "": no filters

	Listen   string `json:"listen"` // host:port for other clusters' replicas; "": nobody asks here
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	CAFile   string `json:"caFile"` // who signs the clusters' certificates

	NATS *NATSConfig `json:"nats"`

	Lease  time.Duration `json:"lease"`
	Drain  time.Duration `json:"drain"`
	Rotate time.Duration `json:"rotate"`
	Blocks int           `json:"blocks"` // of 256 bytes of prompt that are remembered as hot, of each pool; default 1,000,000

	Exports []ExportConfig `json:"exports"`
	Peers   []PeerConfig   `json:"peers"`
	Use     UseConfig      `json:"use"`
}

// UseConfig says which requests may be served in other clusters, and what that costs.
type UseConfig struct {
	Requests   string              `json:"requests"` // named (default), always or never
	Mode       string              `json:"mode"`     // parent (default) or endpoint
	Allow      []string            `json:"allow"`    // clusters, region:NAME or *; none: all
	Objectives map[string][]string `json:"objectives"`
	Egress     map[string]float64  `json:"egress"` // by class: seconds that a gigabyte is worth
}

// NATSConfig says how clusters reach each other through NATS.
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
	Direct   bool            `json:"direct"` // endpoints can be reached from the other clusters
	Egress   string          `json:"egress"` // class of the traffic that leaves this cluster
	Money    float64         `json:"money"`  // for a million tokens
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
	Certificate   string   `json:"certificate"`   // DNS name or URI that its certificate carries; default: Name
	Addresses     []string `json:"addresses"`     // host:port of its replicas; a name stands for all its addresses
	Export        []string `json:"export"`        // patterns of namespace/name that it may see; default none
	Accept        []string `json:"accept"`        // patterns of its pools that are used here; default none
	KeyFile       string   `json:"keyFile"`       // secret of the pair; required with NATS
	Region        string   `json:"region"`        // where it is, whatever it tells; "": it is believed
	PickTokenFile string   `json:"pickTokenFile"` // what its pickers ask for at their pick listeners; "": they are not asked
	Rate          int      `json:"rate"`          // bytes per second of filters, each way; default 1 MiB
	MaxFilter     int      `json:"maxFilter"`     // bytes of its filters; default 32 MiB
}

// maxPeers bounds the clusters of a federation.
const maxPeers = 256

// ReadConfig reads and checks a file.
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

// ParseConfig checks the text of a file. Every fault is told with its place.
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
		return fmt.Errorf("cluster: %q is not a name: letters, digits, - and . are allowed", c.Cluster)
	case c.NATS == nil && !c.Standalone() && (c.CertFile == "" || c.KeyFile == "" || c.CAFile == ""):
		return errors.New("certFile, keyFile and caFile are required: clusters know each other by certificates (or set nats)")
	case c.NATS != nil && len(c.NATS.URLs) == 0:
		return errors.New("nats.urls: none is given")
	case c.NATS != nil && c.Listen != "":
		return errors.New("listen and nats cannot be used together")
	case c.Lease != 0 && (c.Lease < time.Second || c.Lease > 5*time.Minute):
		return errors.New("lease: from 1s to 5m")
	case c.Drain < 0 || c.Rotate < 0 || c.Rotate > 0 && c.Rotate < time.Minute:
		return errors.New("drain, rotate: too short")
	case c.Blocks < 0 || c.Blocks > filter.MaxHot:
		return fmt.Errorf("blocks: from 0 to %d", filter.MaxHot)
	case len(c.Peers) > maxPeers:
		return fmt.Errorf("peers: at most %d", maxPeers)
	}
	if u := &c.Use; !slices.Contains([]string{"", "named", "always", "never"}, u.Requests) || !slices.Contains([]string{"", "parent", "endpoint"}, u.Mode) {
		return errors.New("use: requests is named, always or never, mode is parent or endpoint")
	}
	for class, price := range c.Use.Egress {
		if !(price >= 0) {
			return fmt.Errorf("use.egress: %q: seconds for a gigabyte, 0 or more", class)
		}
	}
	seen := map[string]bool{}
	for i := range c.Exports {
		e := &c.Exports[i]
		if _, err := ParsePool(e.Pool); err != nil || seen[e.Pool] {
			return fmt.Errorf("exports[%d].pool: %q is not namespace/name, or there twice", i, e.Pool)
		}
		seen[e.Pool] = true
	}
	if err := c.checkPeers(); err != nil {
		return err
	}
	return c.checkRules()
}

// checkRules finds entries of rules that allow no cluster, which would refuse requests for as long as nobody
// notices, and rules without entries, which allow all.
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
			return fmt.Errorf("%s: %q is no cluster of this file, region:NAME or *", field, entry)
		}
		return nil
	}
	if err := check("use.allow", c.Use.Allow); err != nil {
		return err
	}
	for _, objective := range slices.Sorted(maps.Keys(c.Use.Objectives)) {
		list, field := c.Use.Objectives[objective], "use.objectives: "+objective
		if len(list) == 0 {
			return fmt.Errorf("%s: no cluster is listed; * stands for all", field)
		}
		if err := check(field, list); err != nil {
			return err
		}
	}
	return nil
}

// Regions returns where other clusters are by the file, whatever they tell.
func (c *Config) Regions() map[string]string {
	regions := map[string]string{}
	for i := range c.Peers {
		if p := &c.Peers[i]; p.Region != "" {
			regions[p.Name] = p.Region
		}
	}
	return regions
}

// Alone reports whether the file names a cluster and no other: nothing is told or heard, and
// rules about where requests may be served hold.
func (c *Config) Standalone() bool { return len(c.Peers) == 0 && c.Listen == "" && c.NATS == nil }

func (c *Config) checkPeers() error {
	seen := map[string]bool{c.Cluster: true}
	for i := range c.Peers {
		p := &c.Peers[i]
		switch {
		case !validName(p.Name) || seen[p.Name]:
			return fmt.Errorf("peers[%d].name: %q is not a name, or is there twice, or is this cluster's", i, p.Name)
		case c.NATS != nil && p.KeyFile == "":
			return fmt.Errorf("peers[%d] (%s): keyFile is required with nats: the key of the pair says who speaks", i, p.Name)
		case c.NATS == nil && len(p.Addresses) == 0 && c.Listen == "":
			return fmt.Errorf("peers[%d] (%s): no addresses, and no listener on which it could ask", i, p.Name)
		case p.Rate < 0 || p.Rate > 0 && p.Rate < 4096:
			return fmt.Errorf("peers[%d] (%s): rate: at least 4096 bytes per second", i, p.Name)
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

// cleanName makes a replica's name one that can be part of a subject.
func cleanName(s string) string {
	s = strings.Map(func(c rune) rune {
		if validName(string(c)) {
			return c
		}
		return '-'
	}, s)
	return s[:min(len(s), 63)]
}

// validName reports whether a name can be part of a subject, a log and a certificate.
func validName(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	return strings.IndexFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	}) < 0
}

var errPool = errors.New("federation: a pool is namespace/name")

// maxPoolName is what of a namespace, and of a name, others are told.
const maxPoolName = 253

// ParsePool reads namespace/name.
func ParsePool(s string) (federation.PoolKey, error) {
	ns, name, ok := strings.Cut(s, "/")
	if !ok || ns == "" || name == "" || strings.Contains(name, "/") || len(ns) > maxPoolName || len(name) > maxPoolName {
		return federation.PoolKey{}, errPool
	}
	return federation.PoolKey{Namespace: ns, Name: name}, nil
}

// Export returns what the file says of a pool; the rest is for the caller to fill.
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

// readSecret reads a secret: base64 in one line, of 16 bytes or more.
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
		return nil, nil, fmt.Errorf("federation: %s: a secret is base64 in one line: %w", file, err)
	}
	s, err := filter.NewSecret(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, raw, nil
}

// readSecrets reads the federation's: one in each line, the first of which is in use and
// the second good beside it. It returns the file's text too.
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
		return nil, nil, "", fmt.Errorf("federation: %s: %d secrets: want one, or two while it is exchanged", file, len(lines))
	}
	if use, _, err = parseSecret(file, lines[0]); err == nil && len(lines) == 2 {
		also, _, err = parseSecret(file, lines[1])
	}
	return use, also, string(b), err
}
