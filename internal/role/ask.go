// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package role

// Asked is an Instance whose tables can be looked into, beyond its status.
type Asked interface {
	Instance
	// Ask answers a question of the role, such as "sessions". The answer is a struct
	// that encoding/json can marshal with snake_case keys. The error says in one sentence
	// what is wrong with the question.
	Ask(question string, arguments map[string]string) (answer any, err error)
}

// Ordered is an Instance that can be changed beside its configuration, for as long as it
// runs.
type Ordered interface {
	Instance
	// Order does something, such as "static_add", or nothing if it returns an error.
	Order(order string, arguments map[string]string) (answer any, err error)
}
