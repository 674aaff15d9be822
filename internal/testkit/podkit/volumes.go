package podkit

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tokenFolder is where pods find the token of their service account.
const tokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// devices are the devices of every container.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// mounts returns the mounts of a container: the runtime's, the image's, and the volumes.
func (p *Pod) mounts(c *container, image Image) (list []mount) {
	p.k.tb.Helper()
	list = append(list, mount{From: "proc", To: "/proc"}, mount{From: "/sys", To: "/sys", ReadOnly: true}, mount{From: "tmpfs", To: "/dev/shm"})
	for _, d := range devices {
		list = append(list, mount{From: d, To: d})
	}
	resolv, err := resolvConf(p.dir, p.Namespace)
	p.k.must(err)
	hosts := filepath.Join(p.dir, "hosts")
	p.k.must(os.WriteFile(hosts, fmt.Appendf(nil, "127.0.0.1\tlocalhost\n%s\t%s\n", p.IP, p.Name), 0o644))
	list = append(list, mount{From: resolv, To: "/etc/resolv.conf"}, mount{From: hosts, To: "/etc/hosts"})
	for to, from := range image.Files {
		list = append(list, mount{From: from, To: to, ReadOnly: true})
	}
	if p.spec.Automount == nil || *p.spec.Automount {
		list = append(list, mount{From: p.token(), To: tokenFolder, ReadOnly: true})
	}
	for _, m := range c.Mounts {
		list = append(list, p.mountsOf(m)...)
	}
	return list
}

// mountsOf returns the mounts of one volume in a container.
func (p *Pod) mountsOf(m volumeMount) (list []mount) {
	p.k.tb.Helper()
	i := slices.IndexFunc(p.spec.Volumes, func(v podVolume) bool { return v.Name == m.Name })
	switch v := p.spec.Volumes[i]; {
	case v.Claim != nil:
		p.k.mu.Lock()
		dir := p.k.claims[p.Namespace+"/"+v.Claim.Name]
		p.k.mu.Unlock()
		if dir == "" {
			p.k.tb.Fatalf("pod %s: the claim %s of volume %s is not bound", p.Name, v.Claim.Name, v.Name)
		}
		return []mount{{From: filepath.Join(dir, m.SubPath), To: m.Path, ReadOnly: m.ReadOnly || v.Claim.ReadOnly}}
	case v.Image != nil:
		image := p.k.image(v.Image.Reference)
		if image.Files == nil || m.SubPath != "" {
			p.k.tb.Fatalf("pod %s: image %q of volume %s cannot be pulled, or has a subPath", p.Name, v.Image.Reference, v.Name)
		}
		for to, from := range image.Files {
			list = append(list, mount{From: from, To: filepath.Join(m.Path, to), ReadOnly: true})
		}
		return list
	}
	return []mount{{From: filepath.Join(p.volume(m.Name), m.SubPath), To: m.Path, ReadOnly: m.ReadOnly}}
}

func (p *Pod) volume(name string) string { return filepath.Join(p.dir, "volumes", name) }

// token writes the token of the pod's service account once and returns its folder.
func (p *Pod) token() string {
	p.k.tb.Helper()
	dir := filepath.Join(p.dir, "token")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	account := p.spec.Account
	if account == "" {
		account = "default"
	}
	if _, err := p.k.c.Command("kubectl", "", "get", "serviceaccount", account, "-n", p.Namespace); err != nil && account == "default" {
		p.k.c.Kubectl("create", "serviceaccount", account, "-n", p.Namespace) // a controller creates it
	}
	token := strings.TrimSpace(p.k.c.Kubectl("create", "token", account, "-n", p.Namespace))
	p.publish(dir, map[string][]byte{"token": []byte(token), "ca.crt": p.k.c.Config().CA, "namespace": []byte(p.Namespace)}, 0o644)
	return dir
}

// writeVolumes writes the content of all volumes.
func (p *Pod) writeVolumes() {
	p.k.tb.Helper()
	p.makeEmpty()
	for i := range p.spec.Volumes {
		v := &p.spec.Volumes[i]
		dir := p.volume(v.Name)
		switch {
		case v.Empty != nil: // by makeEmpty
		case v.Claim != nil, v.Image != nil: // mounted from their origin
		case v.Secret != nil:
			p.publish(dir, p.content("secret", v.Secret), v.Secret.Mode)
		case v.Config != nil:
			p.publish(dir, p.content("configmap", v.Config), v.Config.Mode)
		case v.Projected != nil:
			files := map[string][]byte{}
			for _, s := range v.Projected.Sources {
				kind, source := "secret", s.Secret
				if source == nil {
					kind, source = "configmap", s.Config
				}
				if source == nil {
					p.k.tb.Fatalf("pod %s: the kit does not support all sources of volume %s", p.Name, v.Name)
				}
				for name, data := range p.content(kind, source) {
					files[name] = data
				}
			}
			p.publish(dir, files, v.Projected.Mode)
		default:
			p.k.tb.Fatalf("pod %s: the kit does not support the kind of volume %s", p.Name, v.Name)
		}
	}
}

// makeEmpty creates the emptyDir volumes that do not exist.
func (p *Pod) makeEmpty() {
	p.k.tb.Helper()
	for i := range p.spec.Volumes {
		if v := &p.spec.Volumes[i]; v.Empty != nil {
			dir := p.volume(v.Name)
			p.k.must(os.MkdirAll(dir, 0o755))
			p.k.must(os.Chmod(dir, 0o777|os.ModeSetgid))
			p.chown(dir)
		}
	}
}

// Refresh writes the current content of Secrets and ConfigMaps, as the kubelet does about once a
// minute.
func (p *Pod) Refresh() {
	p.k.tb.Helper()
	p.writeVolumes()
}

// content returns the files of a Secret or ConfigMap.
func (p *Pod) content(kind string, s *volumeSource) map[string][]byte {
	p.k.tb.Helper()
	name := s.SecretName
	if name == "" {
		name = s.Name
	}
	data, found := p.data(kind, name)
	if !found {
		if s.Optional {
			return nil
		}
		p.k.tb.Fatalf("pod %s: %s %s does not exist", p.Name, kind, name)
	}
	if len(s.Items) == 0 {
		return data
	}
	files := map[string][]byte{}
	for _, item := range s.Items {
		content, ok := data[item.Key]
		if !ok {
			p.k.tb.Fatalf("pod %s: %s %s has no key %s", p.Name, kind, name, item.Key)
		}
		files[item.Path] = content
	}
	return files
}

// data returns the entries of a Secret or ConfigMap.
func (p *Pod) data(kind, name string) (files map[string][]byte, found bool) {
	p.k.tb.Helper()
	out, err := p.k.c.Command("kubectl", "", "get", kind, name, "-n", p.Namespace, "-o", "json")
	if err != nil {
		return nil, false
	}
	var o struct {
		Data map[string]string `json:"data"`
	}
	p.k.must(json.Unmarshal([]byte(out), &o))
	files = map[string][]byte{}
	for key, value := range o.Data {
		files[key] = []byte(value)
		if kind == "secret" {
			files[key], err = base64.StdEncoding.DecodeString(value)
			p.k.must(err)
		}
	}
	return files, true
}

// publish replaces the files of a folder at once, by the symbolic links that the kubelet uses.
func (p *Pod) publish(dir string, files map[string][]byte, mode int) {
	p.k.tb.Helper()
	p.k.must(os.MkdirAll(dir, 0o755))
	version, err := os.MkdirTemp(dir, "..version")
	p.k.must(err)
	p.k.must(os.Chmod(version, 0o755))
	if mode == 0 {
		mode = 0o644
	}
	if p.spec.Security.FSGroup != nil {
		mode |= 0o440
	}
	for name, data := range files {
		path := filepath.Join(version, name)
		p.k.must(os.WriteFile(path, data, 0o600))
		p.k.must(os.Chmod(path, os.FileMode(mode)))
		p.chown(path)
	}
	link := filepath.Join(dir, "..data_tmp")
	p.k.must(os.Symlink(filepath.Base(version), link))
	p.k.must(os.Rename(link, filepath.Join(dir, "..data")))
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			p.k.must(os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
		}
	}
}

// chown gives a file to the pod's group.
func (p *Pod) chown(path string) {
	p.k.tb.Helper()
	if group := p.spec.Security.FSGroup; group != nil {
		p.k.must(os.Chown(path, 0, *group))
	}
}

// environ are environment variables in order.
type environ struct {
	names  []string
	values map[string]string
}

func (e *environ) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environ) list() (list []string) {
	for _, name := range e.names {
		list = append(list, name+"="+e.values[name])
	}
	return list
}

// reference is $(NAME), or $$ that stands for one dollar.
var reference = regexp.MustCompile(`\$\$|\$\(([A-Za-z0-9_.-]+)\)`)

// expand replaces references to variables, as the kubelet does. Unknown ones stay.
func expand(text string, env *environ) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := env.values[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}

// environment returns the variables of a container: the variables of Services, then its own.
func (p *Pod) environment(c *container) *environ {
	p.k.tb.Helper()
	env := &environ{values: map[string]string{}}
	env.set("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	env.set("HOME", "/")
	env.set("HOSTNAME", p.Name)
	env.set("KUBERNETES_SERVICE_HOST", serverIP)
	env.set("KUBERNETES_SERVICE_PORT", "443")
	p.k.mu.Lock()
	for _, s := range p.k.services {
		if s.Metadata.Namespace == p.Namespace && s.Spec.ClusterIP != "None" && len(s.Spec.Ports) > 0 {
			name, port := strings.ToUpper(strings.ReplaceAll(s.Metadata.Name, "-", "_")), strconv.Itoa(s.Spec.Ports[0].Port)
			env.set(name+"_SERVICE_HOST", s.Spec.ClusterIP)
			env.set(name+"_SERVICE_PORT", port)
			env.set(name+"_PORT", "tcp://"+net.JoinHostPort(s.Spec.ClusterIP, port))
		}
	}
	p.k.mu.Unlock()
	for _, v := range c.Env {
		if value, ok := p.value(&v, env); ok {
			env.set(v.Name, value)
		}
	}
	return env
}

// value returns the value of a variable; false if it refers to an optional key that does not exist.
func (p *Pod) value(v *variable, env *environ) (value string, ok bool) {
	p.k.tb.Helper()
	if v.From == nil {
		return expand(v.Value, env), true
	}
	kind, key := "secret", v.From.Secret
	if key == nil {
		kind, key = "configmap", v.From.Config
	}
	switch {
	case v.From.Field != nil:
		return p.field(v.From.Field.Path), true
	case key != nil:
		data, _ := p.data(kind, key.Name)
		content, found := data[key.Key]
		if !found && !key.Optional {
			p.k.tb.Fatalf("pod %s: variable %s: %s %s has no key %s", p.Name, v.Name, kind, key.Name, key.Key)
		}
		return string(content), found
	}
	p.k.tb.Fatalf("pod %s: the kit does not support the source of variable %s", p.Name, v.Name)
	return "", false
}

// field returns a field of the downward API.
func (p *Pod) field(path string) string {
	p.k.tb.Helper()
	fields := map[string]string{
		"metadata.name": p.Name, "metadata.namespace": p.Namespace, "metadata.uid": p.uid, "spec.nodeName": "node",
		"spec.serviceAccountName": p.spec.Account, "status.podIP": p.IP, "status.podIPs": p.IP, "status.hostIP": nodeIP,
	}
	if value, ok := fields[path]; ok {
		return value
	}
	for prefix, values := range map[string]map[string]string{"metadata.labels['": p.labels, "metadata.annotations['": p.annotations} {
		if name, ok := strings.CutPrefix(path, prefix); ok {
			return values[strings.TrimSuffix(name, "']")]
		}
	}
	p.k.tb.Fatalf("pod %s: the kit does not support field %s; it does %v", p.Name, path, slices.Collect(func(yield func(string) bool) {
		for name := range fields {
			if !yield(name) {
				return
			}
		}
	}))
	return ""
}
