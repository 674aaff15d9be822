// Package folder reads the prompt-related settings of a model's folder: chat templates, special and
// added tokens, and the kind of model.
package folder
