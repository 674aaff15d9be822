// Package folder reads what the files of a model's folder say of its prompts: chat
// templates, special and added tokens, and the kind of the model.
package folder
