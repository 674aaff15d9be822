package natsbus_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/grapevine-epp/grapevine/cluster/natsbus"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// serve starts a nats-server with options that the embedded server lacks.
func serve(t testing.TB, opt server.Options) *server.Server {
	t.Helper()
	opt.NoLog, opt.NoSigs = true, true
	if opt.Host == "" {
		opt.Host, opt.Port = "127.0.0.1", server.RANDOM_PORT
	}
	s, err := server.NewServer(&opt)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server accepts no clients")
	}
	return s
}

// file writes a temporary file and returns its path.
func file(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// must returns v and panics on an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// tenancy is a NATS operator with one account.
type tenancy struct {
	operator *jwt.OperatorClaims
	signer   nkeys.KeyPair // the operator's key
	account  nkeys.KeyPair
	resolver *server.MemAccResolver
}

func newTenancy() *tenancy {
	operator, account := must(nkeys.CreateOperator()), must(nkeys.CreateAccount())
	oc := jwt.NewOperatorClaims(must(operator.PublicKey()))
	oc = must(jwt.DecodeOperatorClaims(must(oc.Encode(operator))))
	ac := jwt.NewAccountClaims(must(account.PublicKey()))
	t := &tenancy{oc, operator, account, &server.MemAccResolver{}}
	if err := t.resolver.Store(ac.Subject, must(ac.Encode(operator))); err != nil {
		panic(err)
	}
	return t
}

func (n *tenancy) use(o *server.Options) {
	o.TrustedOperators, o.AccountResolver = []*jwt.OperatorClaims{n.operator}, n.resolver
}

// creds returns a credentials file for a new user of the account, who may use only the group's
// subjects.
func (n *tenancy) creds(t testing.TB) string {
	user := must(nkeys.CreateUser())
	uc := jwt.NewUserClaims(must(user.PublicKey()))
	uc.Pub.Allow.Add("grapevine.test.>")
	uc.Sub.Allow.Add("grapevine.test.>")
	return file(t, "grapevine.creds", must(jwt.FormatUserConfig(must(uc.Encode(n.account)), must(user.Seed()))))
}

// revoke revokes credentials, including those of connected users.
func (n *tenancy) revoke(t testing.TB, s *server.Server, creds string) {
	t.Helper()
	user := must(jwt.DecodeUserClaims(must(jwt.ParseDecoratedJWT(must(os.ReadFile(creds))))))
	account := must(n.account.PublicKey())
	ac := must(jwt.DecodeAccountClaims(must(n.resolver.Fetch(account))))
	ac.Revoke(user.Subject)
	ac = must(jwt.DecodeAccountClaims(must(ac.Encode(n.signer))))
	if err := n.resolver.Store(account, must(ac.Encode(n.signer))); err != nil {
		t.Fatal(err)
	}
	s.UpdateAccountClaims(must(s.LookupAccount(account)), ac)
}

// TestAuth: replicas share state with each method of authentication. Credentials that the server
// rejects fail at startup, with a one-line error that names the reason and the server.
func TestAuth(t *testing.T) {
	cert, pool := certificate(t)
	ca := file(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(cert.PrivateKey))})
	secret, other := must(nkeys.CreateUser()), must(nkeys.CreateUser())
	ours, theirs := newTenancy(), newTenancy()
	missing := filepath.Join(t.TempDir(), "missing")
	type change = func(*natsbus.Options)
	for _, tc := range []struct {
		name   string
		server func(*server.Options)
		good   change
		bad    map[string]change // by the text of the error
	}{
		{
			"user and password", func(o *server.Options) { o.Username, o.Password = "u", "p" },
			func(o *natsbus.Options) { o.User, o.Password = "u", "p" },
			map[string]change{"authorization": func(o *natsbus.Options) { o.User, o.Password = "u", "q" }},
		}, {
			"password in the URL", func(o *server.Options) { o.Username, o.Password = "u", "p" },
			func(o *natsbus.Options) { o.URLs[0] = strings.Replace(o.URLs[0], "://", "://u:p@", 1) },
			map[string]change{"authorization": func(o *natsbus.Options) { o.URLs[0] = strings.Replace(o.URLs[0], "://", "://u:guessed@", 1) }},
		}, {
			"nkey", func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: must(secret.PublicKey())}} },
			func(o *natsbus.Options) { o.NKey = file(t, "seed", must(secret.Seed())) },
			map[string]change{
				"authorization": func(o *natsbus.Options) { o.NKey = file(t, "seed", must(other.Seed())) },
				"no such file":  func(o *natsbus.Options) { o.NKey = missing },
			},
		}, {
			"creds", ours.use,
			func(o *natsbus.Options) { o.Credentials = ours.creds(t) },
			map[string]change{
				"authorization": func(o *natsbus.Options) { o.Credentials = theirs.creds(t) },
				"no such file":  func(o *natsbus.Options) { o.Credentials = missing },
				"nkey":          func(o *natsbus.Options) { o.Credentials = file(t, "garbage", []byte("not credentials")) },
			},
		}, {
			"TLS both ways", func(o *server.Options) {
				// With TLS 1.3 a reset can hide the rejection, and the replica keeps trying. With
				// 1.2 it is part of the handshake.
				o.TLSConfig = &tls.Config{
					Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MaxVersion: tls.VersionTLS12,
				}
				o.TLS, o.TLSVerify, o.TLSTimeout = true, true, 2
			},
			func(o *natsbus.Options) { o.CAFile, o.CertFile, o.KeyFile = ca, ca, file(t, "key.pem", key) },
			map[string]change{
				"remote error: tls": func(o *natsbus.Options) { o.CAFile = ca },
				"unknown authority": func(o *natsbus.Options) { o.TLS = &tls.Config{} },
				"no such file":      func(o *natsbus.Options) { o.CAFile = missing },
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var opt server.Options
			tc.server(&opt)
			url := serve(t, opt).ClientURL()
			a, b := newNode(t, "a", []string{url}, tc.good), newNode(t, "b", []string{url}, tc.good)
			a.Start(t, "e1")
			b.Start(t, "e1")
			testkit.Eventually(t, func() string { return joined(a, b) })
			for says, bad := range tc.bad {
				n := newNode(t, "x", []string{url}, bad)
				err := n.Open(t.Context())
				if err == nil { // a server that rejected late shows in Status
					testkit.Eventually(t, func() string {
						if h := n.Status().Health; h.OK || !strings.Contains(strings.ToLower(h.Line), says) {
							return says + ": " + h.Line
						}
						return ""
					})
					continue
				}
				line := strings.ToLower(err.Error())
				if !strings.Contains(line, says) || strings.Contains(line, "\n") || strings.Contains(line, "guessed") {
					t.Errorf("error is %[2]v, want one line with %[1]q", says, err)
				}
			}
		})
	}
}

// TestRevoked revokes a connected replica's credentials. The replica keeps reporting why it is
// alone, and rejoins with the new credentials in its file.
func TestRevoked(t *testing.T) {
	ours := newTenancy()
	var opt server.Options
	ours.use(&opt)
	s := serve(t, opt)
	creds := ours.creds(t)
	a := newNode(t, "a", []string{s.ClientURL()}, func(o *natsbus.Options) { o.Credentials = creds })
	b := newNode(t, "b", []string{s.ClientURL()}, func(o *natsbus.Options) { o.Credentials = ours.creds(t) })
	a.Start(t, "e1", "e2")
	b.Start(t, "e1", "e2")
	testkit.Eventually(t, func() string { return joined(a, b) })
	ours.revoke(t, s, creds)
	testkit.Eventually(t, func() string {
		if h := a.Status().Health; h.OK || h.State != "partitioned" || !refusal(h.Line) {
			return h.Line
		}
		return ""
	})
	for range 100 { // a few attempts
		if h := a.Status().Health; h.OK || !refusal(h.Line) {
			t.Fatalf("%+v", h)
		}
		time.Sleep(10 * time.Millisecond)
	}
	testkit.Eventually(t, func() string {
		if st := b.Status(); len(st.Lost) != 1 || st.Bus.Disconnected {
			return fmt.Sprintf("b says %q", st.Health.Line)
		}
		return ""
	})
	if err := os.WriteFile(creds, must(os.ReadFile(ours.creds(t))), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() string { return joined(a, b) })
}

// refusal reports whether a log line says that credentials were rejected.
func refusal(line string) bool {
	line = strings.ToLower(line)
	return strings.Contains(line, "revoked") || strings.Contains(line, "authorization violation")
}

// TestSmallPayload: servers with a small message limit are reported.
func TestSmallPayload(t *testing.T) {
	n := newNode(t, "a", []string{serve(t, server.Options{MaxPayload: 64 << 10}).ClientURL()}, nil)
	n.Start(t, "e1")
	testkit.Eventually(t, func() string {
		if h := n.Status().Health; h.State != "misconfigured" || !strings.Contains(h.Line, "max_payload") {
			return fmt.Sprintf("%+v", h)
		}
		return ""
	})
}

// TestNoPassword: a password in a URL, with or without a scheme, is never printed.
func TestNoPassword(t *testing.T) {
	for _, url := range []string{"nats://u:hidden@127.0.0.1:1", "u:hidden@127.0.0.1:1"} {
		var log bytes.Buffer
		n := newNode(t, "a", []string{url}, func(o *natsbus.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		n.Start(t, "e1")
		h := n.Status().Health
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if h.State != "partitioned" || !strings.Contains(h.Line, "127.0.0.1:1") || !strings.Contains(log.String(), "127.0.0.1:1") {
			t.Errorf("%+v; log: %s", h, &log)
		}
		if strings.Contains(h.Line+log.String(), "hidden") {
			t.Errorf("password is printed in status: %s; log: %s", h.Line, &log)
		}
	}
}
