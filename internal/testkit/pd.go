package testkit

// SplitAll is a configuration that sends every prompt of 64 uncached tokens or more to a prefill engine.
const SplitAll = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: disagg-profile-handler
  parameters: {threshold: 64}
- {type: predicted-ttft-scorer}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: predicted-ttft-scorer}]
- name: decode
  plugins: [{pluginRef: predicted-ttft-scorer}]
`
