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

// Where a pod finds its service account.
const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// Config says where an API server is and who we are there.
type Config struct {
	Server     string // URL
	Namespace  string // of the pod or of the kubeconfig's context, "" when neither says
	CA         []byte // PEM; empty: the system's
	ServerName string // in the server's certificate, "" for the URL's host
	SkipVerify bool
	Token      string
	TokenFile  string // read again every minute; counts more than Token
	Cert, Key  []byte // PEM, of the client
}

// ErrNowhere means that no API server is known.
var ErrNowhere = errors.New("kubeapi: not in a pod, and no kubeconfig: give --kubeconfig or set KUBECONFIG")

// Find returns the configuration of the kubeconfig file at path, or else that
// of the pod that this process runs in, or else that of $KUBECONFIG.
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

// kubeconfig is the part of a kubeconfig file that is read.
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

// Kubeconfig reads the current context of a kubeconfig file. Users that are
// looked up by running a program are refused.
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
		return c, fmt.Errorf("there is no context %q", k.CurrentContext)
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
		return errors.New("the user is looked up by running a program, which is not done here: use a token or a certificate, or kubectl proxy")
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

// dataOrFile returns what is in data, in base64, or else in the file.
func dataOrFile(data, file, dir string) ([]byte, error) {
	switch {
	case data != "":
		return base64.StdEncoding.DecodeString(data)
	case file != "":
		return readFull(within(dir, file))
	}
	return nil, nil
}

// readFull reads a file that has to say something: without its authority a server would be
// held against those of the system.
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
