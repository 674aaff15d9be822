package podkit

import "encoding/json"

// podSpec holds the fields of a pod's specification that the kit reads.
type podSpec struct {
	Account        string        `json:"serviceAccountName"`
	Automount      *bool         `json:"automountServiceAccountToken"`
	NodeName       string        `json:"nodeName"`
	HostNetwork    bool          `json:"hostNetwork"`
	Security       security      `json:"securityContext"`
	InitContainers []container   `json:"initContainers"`
	Containers     []container   `json:"containers"`
	Volumes        []podVolume   `json:"volumes"`
	Grace          int           `json:"terminationGracePeriodSeconds"`
	Unsupported    []interface{} `json:"ephemeralContainers"`
}

type security struct {
	User         *int  `json:"runAsUser"`
	Group        *int  `json:"runAsGroup"`
	FSGroup      *int  `json:"fsGroup"`
	NonRoot      bool  `json:"runAsNonRoot"`
	ReadOnly     bool  `json:"readOnlyRootFilesystem"`
	Escalation   *bool `json:"allowPrivilegeEscalation"`
	Capabilities struct {
		Add  []string `json:"add"`
		Drop []string `json:"drop"`
	} `json:"capabilities"`
}

type container struct {
	Name     string            `json:"name"`
	Image    string            `json:"image"`
	Command  []string          `json:"command"`
	Args     []string          `json:"args"`
	Dir      string            `json:"workingDir"`
	Env      []variable        `json:"env"`
	EnvFrom  []json.RawMessage `json:"envFrom"`
	Ports    []containerPort   `json:"ports"`
	Mounts   []volumeMount     `json:"volumeMounts"`
	Security security          `json:"securityContext"`
	Restart  string            `json:"restartPolicy"`
	Startup  *probe            `json:"startupProbe"`
	Live     *probe            `json:"livenessProbe"`
	Ready    *probe            `json:"readinessProbe"`
}

type containerPort struct {
	Name string `json:"name"`
	Port int    `json:"containerPort"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  *struct {
		Field *struct {
			Path string `json:"fieldPath"`
		} `json:"fieldRef"`
		Secret *keyRef `json:"secretKeyRef"`
		Config *keyRef `json:"configMapKeyRef"`
	} `json:"valueFrom"`
}

type keyRef struct {
	Name     string `json:"name"`
	Key      string `json:"key"`
	Optional bool   `json:"optional"`
}

type volumeMount struct {
	Name     string `json:"name"`
	Path     string `json:"mountPath"`
	SubPath  string `json:"subPath"`
	ReadOnly bool   `json:"readOnly"`
}

// podVolume is one of the supported kinds of volumes.
type podVolume struct {
	Name   string           `json:"name"`
	Secret *volumeSource    `json:"secret"`
	Config *volumeSource    `json:"configMap"`
	Empty  *json.RawMessage `json:"emptyDir"`
	Claim  *struct {
		Name     string `json:"claimName"`
		ReadOnly bool   `json:"readOnly"`
	} `json:"persistentVolumeClaim"`
	Image *struct {
		Reference string `json:"reference"`
	} `json:"image"`
	Projected *struct {
		Mode    int `json:"defaultMode"`
		Sources []struct {
			Secret *volumeSource `json:"secret"`
			Config *volumeSource `json:"configMap"`
		} `json:"sources"`
	} `json:"projected"`
}

// volumeSource names a Secret, which volumes call secretName, or a ConfigMap.
type volumeSource struct {
	SecretName string `json:"secretName"`
	Name       string `json:"name"`
	Mode       int    `json:"defaultMode"`
	Optional   bool   `json:"optional"`
	Items      []struct {
		Key  string `json:"key"`
		Path string `json:"path"`
	} `json:"items"`
}

type probe struct {
	GRPC *struct {
		Port    int    `json:"port"`
		Service string `json:"service"`
	} `json:"grpc"`
	HTTP *struct {
		Path   string          `json:"path"`
		Port   json.RawMessage `json:"port"`
		Scheme string          `json:"scheme"`
	} `json:"httpGet"`
	TCP  *json.RawMessage `json:"tcpSocket"`
	Exec *json.RawMessage `json:"exec"`
}
