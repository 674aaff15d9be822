package podkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// Image is the content of a container image.
type Image struct {
	Files      map[string]string // paths in the image -> files and folders of this machine
	Entrypoint []string
	User       int
	// Absent leaves out the containers of this image, which are no part of the test.
	Absent bool
}

// Kit runs the pods of one cluster.
type Kit struct {
	tb     testing.TB
	c      *kubekit.Cluster
	images map[string]Image
	dir    string

	mu       sync.Mutex
	pods     map[string]*Pod     // by NAMESPACE/NAME
	services map[string]*service // by NAME.NAMESPACE
	claims   map[string]string   // folders of bound claims, by NAMESPACE/NAME
	turn     int
	count    int
}

// Pod is a pod with its containers.
type Pod struct {
	Name, Namespace, IP string

	k           *Kit
	uid         string
	labels      map[string]string
	annotations map[string]string
	spec        podSpec
	dir         string
	sandbox     *sandbox
	containers  map[string]*running
	ready       bool // k.mu
}

// running is a container that was started.
type running struct {
	spec *container
	cmd  *exec.Cmd
	log  string // file with both outputs
	done chan struct{}
}

// image returns the image of that name. It has no files if there is none.
func (k *Kit) image(name string) Image {
	if registry, rest, ok := strings.Cut(name, "/"); ok && strings.ContainsAny(registry, ".:") {
		name = rest
	}
	return k.images[name]
}

// Open creates a kit. images has the content of each image that pods use, by its name without the
// registry.
func Open(tb testing.TB, c *kubekit.Cluster, images map[string]Image) *Kit {
	tb.Helper()
	k := &Kit{tb: tb, c: c, images: images, dir: tb.TempDir(), pods: map[string]*Pod{}, services: map[string]*service{}, claims: map[string]string{}}
	network.mu.Lock()
	network.recent = k
	network.mu.Unlock()
	tb.Cleanup(func() {
		for _, p := range k.list() {
			if tb.Failed() {
				for name := range p.containers {
					tb.Logf("log of container %s of pod %s/%s:\n%s", name, p.Namespace, p.Name, last(p.Log(name)))
				}
			}
			p.kill()
		}
	})
	return k
}

// Bind makes a folder of this machine the volume of a claim.
func (k *Kit) Bind(namespace, claim, folder string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.claims[namespace+"/"+claim] = folder
}

func last(text string) string { return text[max(0, len(text)-6000):] }

func (k *Kit) list() (list []*Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		list = append(list, p)
	}
	return list
}

// object is a pod, or the template of one.
type object struct {
	APIVersion string         `json:"apiVersion,omitempty"`
	Kind       string         `json:"kind,omitempty"`
	Metadata   objectMeta     `json:"metadata"`
	Spec       map[string]any `json:"spec"`
}

type objectMeta struct {
	Name        string            `json:"name,omitempty"`
	Namespace   string            `json:"namespace,omitempty"`
	UID         string            `json:"uid,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Deployment starts one pod, with a generated name, from the template of a Deployment of the API
// server.
func (k *Kit) Deployment(namespace, name string) *Pod {
	k.tb.Helper()
	var d struct {
		Spec struct {
			Template object `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal([]byte(k.c.Kubectl("get", "deployment", name, "-n", namespace, "-o", "json")), &d); err != nil {
		k.tb.Fatal(err)
	}
	o := d.Spec.Template
	text, err := json.Marshal(o)
	k.must(err)
	h := fnv.New32a()
	h.Write(text)
	hash := fmt.Sprintf("%x", h.Sum32())
	if o.Metadata.Labels == nil {
		o.Metadata.Labels = map[string]string{}
	}
	o.Metadata.Labels["pod-template-hash"] = hash
	k.mu.Lock()
	k.count++
	o.Metadata.Name = fmt.Sprintf("%s-%s-%05d", name, hash, k.count)
	k.mu.Unlock()
	o.Metadata.Namespace = namespace
	return k.start(o)
}

// Manifest starts the pod of a manifest, YAML or JSON.
func (k *Kit) Manifest(namespace, text string) *Pod {
	k.tb.Helper()
	var o object
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		k.tb.Fatal(err)
	}
	if o.Kind != "Pod" {
		k.tb.Fatalf("kind %q, want Pod:\n%s", o.Kind, text)
	}
	o.Metadata.Namespace = namespace
	return k.start(o)
}

// start creates the pod in the API server and starts its containers.
func (k *Kit) start(o object) *Pod {
	k.tb.Helper()
	o.APIVersion, o.Kind = "v1", "Pod"
	o.Spec["nodeName"] = "node"
	text, err := json.Marshal(o)
	k.must(err)
	code, answer := k.c.Do(http.MethodPost, kubekit.Pods.Path(o.Metadata.Namespace, ""), bytes.NewReader(text), "application/json")
	if code != http.StatusCreated {
		k.tb.Fatalf("create pod: %d %s\n%s", code, answer, text)
	}
	return k.runPod(answer)
}

// RunOnce runs a pod that a client has created and that no node runs, until all its containers have
// ended, and reports its phase to the API server.
func (k *Kit) RunOnce(namespace, name string) {
	k.tb.Helper()
	p := k.runPod(k.c.Kubectl("get", "pod", name, "-n", namespace, "-o", "json"))
	phase := "Succeeded"
	for _, r := range p.containers {
		<-r.done
		if r.cmd.ProcessState.ExitCode() != 0 {
			phase = "Failed"
		}
	}
	k.c.PatchStatus(kubekit.Pods, namespace, name, fmt.Sprintf(`{"status":{"phase":%q}}`, phase))
	p.kill()
}

// runPod starts the containers of a pod of the API server.
func (k *Kit) runPod(answer string) *Pod {
	k.tb.Helper()
	var created struct {
		Metadata objectMeta `json:"metadata"`
		Spec     podSpec    `json:"spec"`
	}
	k.must(json.Unmarshal([]byte(answer), &created)) // with the API server's defaults
	m := created.Metadata
	p := &Pod{
		Name: m.Name, Namespace: m.Namespace, IP: newAddress(), k: k, uid: m.UID, labels: m.Labels, annotations: m.Annotations,
		spec: created.Spec, dir: filepath.Join(k.dir, m.Namespace+"-"+m.Name), containers: map[string]*running{},
	}
	k.must(os.MkdirAll(p.dir, 0o755))
	if p.spec.HostNetwork || len(p.spec.Unsupported) > 0 {
		k.tb.Fatalf("pod %s: the kit does not support the host's network and ephemeral containers", p.Name)
	}
	var err error
	p.sandbox, err = openSandbox(p.IP)
	k.must(err)
	network.mu.Lock()
	network.kits[p.IP] = k
	network.mu.Unlock()
	k.mu.Lock()
	k.pods[p.Namespace+"/"+p.Name] = p
	k.mu.Unlock()
	k.c.Ready(p.Namespace, p.Name, p.IP, false)
	p.writeVolumes()
	for i := range p.spec.InitContainers {
		c := &p.spec.InitContainers[i]
		if k.image(c.Image).Absent {
			continue
		}
		if r := p.run(c); c.Restart != "Always" {
			<-r.done
			if code := r.cmd.ProcessState.ExitCode(); code != 0 {
				k.tb.Fatalf("init container %s of %s ended with %d:\n%s", c.Name, p.Name, code, p.Log(c.Name))
			}
		}
	}
	p.runAll()
	return p
}

func (k *Kit) must(err error) {
	k.tb.Helper()
	if err != nil {
		k.tb.Fatal(err)
	}
}

// run starts a container.
func (p *Pod) run(c *container) *running {
	p.k.tb.Helper()
	log, err := os.OpenFile(filepath.Join(p.dir, c.Name+".log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o666)
	p.k.must(err)
	p.k.must(os.Chmod(log.Name(), 0o666)) // the container's user may open /dev/stdout
	r := &running{spec: c, cmd: p.command(p.process(c)), log: log.Name(), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	p.k.must(r.cmd.Start())
	p.containers[c.Name] = r
	go func() {
		_ = r.cmd.Wait() // the exit code is in its state
		log.Close()
		close(r.done)
	}()
	return r
}

// command returns a command that runs a process in the namespaces of the pod.
func (p *Pod) command(x process) *exec.Cmd {
	p.k.tb.Helper()
	cmd, err := x.command(0)
	p.k.must(err)
	return cmd
}

// process returns the process that the container's specification and image describe.
func (p *Pod) process(c *container) process {
	p.k.tb.Helper()
	image := p.k.image(c.Image)
	if image.Files == nil {
		p.k.tb.Fatalf("pod %s: image %q cannot be pulled", p.Name, c.Image)
	}
	root := filepath.Join(p.dir, "root-"+c.Name)
	p.k.must(os.MkdirAll(root, 0o755))
	env := p.environment(c)
	argv := image.Entrypoint
	if len(c.Command) > 0 {
		argv = c.Command
	}
	var args []string
	for _, a := range append(append([]string(nil), argv...), c.Args...) {
		args = append(args, expand(a, env))
	}
	pod, own := &p.spec.Security, &c.Security
	x := process{
		Host: p.Name, Network: p.sandbox.file, Root: root, Mounts: p.mounts(c, image), ReadOnly: own.ReadOnly, Dir: "/", Path: args[0], Args: args, Env: env.list(),
		User: first(image.User, pod.User, own.User), Group: first(0, pod.Group, own.Group), NoNew: own.Escalation != nil && !*own.Escalation,
	}
	if c.Dir != "" {
		x.Dir = c.Dir
	}
	if pod.FSGroup != nil {
		x.Groups = []int{*pod.FSGroup}
	}
	for _, name := range own.Capabilities.Drop {
		x.DropAll = x.DropAll || name == "ALL"
	}
	if (pod.NonRoot || own.NonRoot) && x.User == 0 {
		p.k.tb.Fatalf("pod %s: container %s has runAsNonRoot and the image runs as root", p.Name, c.Name)
	}
	if len(own.Capabilities.Add) > 0 || len(c.EnvFrom) > 0 {
		p.k.tb.Fatalf("pod %s: the kit does not support envFrom and added capabilities", p.Name)
	}
	return x
}

// first returns the last value that is set: a container's value overrides the pod's.
func first(value int, more ...*int) int {
	for _, m := range more {
		if m != nil {
			value = *m
		}
	}
	return value
}

// Exec runs a program in a container, as kubectl exec does, and returns its output.
func (p *Pod) Exec(containerName string, argv ...string) (output string, err error) {
	p.k.tb.Helper()
	r := p.containers[containerName]
	if r == nil {
		p.k.tb.Fatalf("pod %s has no container %q", p.Name, containerName)
	}
	x := p.process(r.spec)
	x.Path, x.Args = argv[0], argv
	out, err := p.command(x).CombinedOutput()
	return string(out), err
}

// Log returns the output of a container since its last start.
func (p *Pod) Log(containerName string) string {
	r := p.containers[containerName]
	if r == nil {
		return ""
	}
	text, _ := os.ReadFile(r.log) // it exists since the start
	return string(text)
}

// PID returns the process of a container.
func (p *Pod) PID(containerName string) int { return p.containers[containerName].cmd.Process.Pid }

// Wait waits until a container ends and returns its exit code.
func (p *Pod) Wait(containerName string, timeout time.Duration) (code int, err error) {
	r := p.containers[containerName]
	select {
	case <-r.done:
		return r.cmd.ProcessState.ExitCode(), nil
	case <-time.After(timeout):
		return -1, fmt.Errorf("container %s runs for more than %v", containerName, timeout)
	}
}

// Terminate sends SIGTERM to all containers, waits for their end at most for the pod's grace period
// and returns an error if a container had to be killed. Services stop sending to the pod at once.
func (p *Pod) Terminate() error {
	p.SetReady(false)
	var errs []error
	end := time.After(time.Duration(max(p.spec.Grace, 1)) * time.Second)
	for _, r := range p.containers {
		_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	for name, r := range p.containers {
		select {
		case <-r.done:
		case <-end:
			_ = r.cmd.Process.Kill()
			<-r.done
			errs = append(errs, fmt.Errorf("container %s of %s was killed after its grace period", name, p.Name))
		}
	}
	return errors.Join(errs...)
}

// EmptyVolumes replaces the content of all emptyDir volumes: the next start is like a new pod's of the
// same name. The containers must have ended.
func (p *Pod) EmptyVolumes() {
	p.k.tb.Helper()
	for i := range p.spec.Volumes {
		if v := &p.spec.Volumes[i]; v.Empty != nil {
			p.k.must(os.RemoveAll(p.volume(v.Name)))
		}
	}
	p.makeEmpty()
}

// Restart starts the containers again after Terminate or Kill: same pod, same address, same volumes.
func (p *Pod) Restart() {
	p.k.tb.Helper()
	for i := range p.spec.Containers {
		p.k.must(os.RemoveAll(filepath.Join(p.dir, "root-"+p.spec.Containers[i].Name)))
	}
	p.runAll()
}

func (p *Pod) runAll() {
	p.k.tb.Helper()
	for i := range p.spec.Containers {
		if c := &p.spec.Containers[i]; !p.k.image(c.Image).Absent {
			p.run(c)
		}
	}
}

// Kill ends all containers without a signal that they could handle.
func (p *Pod) Kill() {
	p.SetReady(false)
	for _, r := range p.containers {
		_ = r.cmd.Process.Kill() // it may have ended
		<-r.done
	}
}

// Remove kills the pod and deletes its object.
func (p *Pod) Remove() {
	p.k.tb.Helper()
	p.kill()
	p.k.c.Delete(kubekit.Pods, p.Namespace, p.Name)
}

func (p *Pod) kill() {
	p.Kill()
	p.k.mu.Lock()
	delete(p.k.pods, p.Namespace+"/"+p.Name)
	p.k.mu.Unlock()
	if p.sandbox != nil {
		p.sandbox.close()
	}
}

// SetReady changes whether Services send to the pod.
func (p *Pod) SetReady(ready bool) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	p.ready = ready
}
