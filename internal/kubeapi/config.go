package kubeapi

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// accountFolder is the location of a pod's service account.
const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// Config is the location of an API server and the credentials.
type Config struct {
	Server     string // URL
	Namespace  string // of the pod or of the kubeconfig's context; "" if unknown
	CA         []byte // PEM; empty: the system's CAs
	ServerName string // name in the server's certificate; "" for the URL's host
	SkipVerify bool
	Token      string
	TokenFile  string // reread every minute; takes precedence over Token
	Cert, Key  []byte // client certificate and key, PEM
}

// ErrNowhere means that no API server is configured.
var ErrNowhere = errors.New("kubeapi: not in a pod, and no kubeconfig: set --kubeconfig or KUBECONFIG")

// Find returns the configuration from the kubeconfig file at path. If path is empty, it uses the
// service account of this process's pod, or $KUBECONFIG outside of a pod.
func Find(path string) (Config, error) {
	if path != "" {
		return Kubeconfig(path)
	}
	if c, err := inCluster(os.Getenv, accountFolder); !errors.Is(err, ErrNowhere) {
		return c, err
	}
	if path = os.Getenv("KUBECONFIG"); path != "" {
		return Kubeconfig(path)
	}
	return Config{}, ErrNowhere
}

func inCluster(env func(string) string, folder string) (Config, error) {
	host, port := env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return Config{}, ErrNowhere
	}
	c := Config{Server: "https://" + net.JoinHostPort(host, port), TokenFile: filepath.Join(folder, "token")}
	if _, err := os.Stat(c.TokenFile); err != nil {
		return c, fmt.Errorf("kubeapi: the pod has no service account token: %w", err)
	}
	var err error
	if c.CA, err = readFull(filepath.Join(folder, "ca.crt")); err != nil {
		return c, fmt.Errorf("kubeapi: the pod's service account: %w", err)
	}
	if ns, err := os.ReadFile(filepath.Join(folder, "namespace")); err == nil {
		c.Namespace = strings.TrimSpace(string(ns))
	}
	return c, nil
}

// kubeconfig is the relevant part of a kubeconfig file.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Clusters       []struct {
		Name    string      `json:"name"`
		Cluster clusterPart `json:"cluster"`
	} `json:"clusters"`
	Contexts []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster   string `json:"cluster"`
			User      string `json:"user"`
			Namespace string `json:"namespace"`
		} `json:"context"`
	} `json:"contexts"`
	Users []struct {
		Name string   `json:"name"`
		User userPart `json:"user"`
	} `json:"users"`
}

type clusterPart struct {
	Server     string `json:"server"`
	CAFile     string `json:"certificate-authority"`
	CAData     string `json:"certificate-authority-data"`
	SkipVerify bool   `json:"insecure-skip-tls-verify"`
	ServerName string `json:"tls-server-name"`
}

type userPart struct {
	Token     string `json:"token"`
	TokenFile string `json:"tokenFile"`
	CertFile  string `json:"client-certificate"`
	CertData  string `json:"client-certificate-data"`
	KeyFile   string `json:"client-key"`
	KeyData   string `json:"client-key-data"`
	Exec      any    `json:"exec"`
	Provider  any    `json:"auth-provider"`
}

// Kubeconfig reads the current context of a kubeconfig file. Users with an exec plugin are
// rejected.
func Kubeconfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("kubeapi: kubeconfig: %w", err)
	}
	c, err := parseKubeconfig(data, filepath.Dir(path))
	if err != nil {
		return c, fmt.Errorf("kubeapi: kubeconfig %s: %w", path, err)
	}
	return c, nil
}

func parseKubeconfig(data []byte, dir string) (c Config, err error) {
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil {
		return c, err
	}
	cluster, user := "", ""
	for _, x := range k.Contexts {
		if x.Name == k.CurrentContext {
			cluster, user, c.Namespace = x.Context.Cluster, x.Context.User, x.Context.Namespace
		}
	}
	if cluster == "" {
		return c, fmt.Errorf("no context %q", k.CurrentContext)
	}
	for _, x := range k.Clusters {
		if x.Name == cluster {
			err = errors.Join(err, c.readCluster(x.Cluster, dir))
		}
	}
	for _, x := range k.Users {
		if x.Name == user {
			err = errors.Join(err, c.readUser(x.User, dir))
		}
	}
	if err == nil && c.Server == "" {
		err = fmt.Errorf("cluster %q has no server", cluster)
	}
	return c, err
}

func (c *Config) readCluster(p clusterPart, dir string) (err error) {
	c.Server, c.SkipVerify, c.ServerName = strings.TrimSuffix(p.Server, "/"), p.SkipVerify, p.ServerName
	c.CA, err = dataOrFile(p.CAData, p.CAFile, dir)
	return err
}

func (c *Config) readUser(p userPart, dir string) (err error) {
	if p.Exec != nil || p.Provider != nil {
		return errors.New("exec credential plugins are not supported: use a token or a certificate, or kubectl proxy")
	}
	c.Token = p.Token
	if p.TokenFile != "" {
		c.TokenFile = within(dir, p.TokenFile)
	}
	if c.Cert, err = dataOrFile(p.CertData, p.CertFile, dir); err != nil {
		return err
	}
	c.Key, err = dataOrFile(p.KeyData, p.KeyFile, dir)
	return err
}

// dataOrFile returns the base64 content of data, or the content of the file if data is empty.
func dataOrFile(data, file, dir string) ([]byte, error) {
	switch {
	case data != "":
		return base64.StdEncoding.DecodeString(data)
	case file != "":
		return readFull(within(dir, file))
	}
	return nil, nil
}

// readFull reads a file that must not be empty: without its CA, a server would be verified against
// the system's CAs.
func readFull(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) == 0 {
		err = fmt.Errorf("kubeapi: %s is empty", path)
	}
	return b, err
}

func within(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}
