package embedded

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Options configure a Server.
type Options struct {
	Name string
	Bind string // host:port for clients; port 0 takes any (127.0.0.1:0)
	// ClusterBind and Routes join servers to a cluster: each listens at
	// ClusterBind (host:port) and connects to Routes (nats://host:port).
	ClusterName string
	ClusterBind string
	Routes      []string

	TLS      *tls.Config
	User     string
	Password string
	Token    string
}

// Server is a running nats-server.
type Server struct{ s *server.Server }

// Start starts a server and waits until it takes clients. It handles no
// signals and keeps nothing on disk.
func Start(o Options) (*Server, error) {
	opts := &server.Options{
		ServerName: o.Name, NoSigs: true, NoLog: true, DontListen: false, MaxPayload: 2 << 20,
		Username: o.User, Password: o.Password, Authorization: o.Token,
		TLSConfig: o.TLS, TLS: o.TLS != nil, TLSTimeout: 2,
	}
	if o.Bind == "" {
		o.Bind = "127.0.0.1:0"
	}
	var err error
	if opts.Host, opts.Port, err = split(o.Bind); err != nil {
		return nil, err
	}
	if err := free(o.Bind); err != nil {
		return nil, err
	}
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	if o.ClusterBind != "" {
		opts.Cluster.Name = o.ClusterName
		if opts.Cluster.Host, opts.Cluster.Port, err = split(o.ClusterBind); err != nil {
			return nil, err
		}
		for _, r := range o.Routes {
			u, err := url.Parse(r)
			if err != nil {
				return nil, fmt.Errorf("embedded: route %q: %w", r, err)
			}
			opts.Routes = append(opts.Routes, u)
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		s.Shutdown()
		return nil, errors.New("embedded: nats-server does not take clients")
	}
	return &Server{s}, nil
}

// free fails when an address cannot be listened at: the server itself would
// only never be ready.
func free(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	return l.Close()
}

func split(addr string) (string, int, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("embedded: %w", err)
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("embedded: port of %q: %w", addr, err)
	}
	return host, int(port), nil
}

// URL returns where clients connect.
func (s *Server) URL() string { return s.s.ClientURL() }

// Routes returns the number of connections to other servers of its cluster.
func (s *Server) Routes() int { return s.s.NumRoutes() }

// Stop ends the server and waits until it has ended.
func (s *Server) Stop() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}
