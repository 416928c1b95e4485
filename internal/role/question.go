// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package role

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Question is one that instances of a role answer beyond their status, or an order that
// they follow for as long as they run. [Ask] is its command line.
type Question struct {
	// Name is that of its command behind the role's, such as "map list".
	Name string
	// Order reports that something is changed.
	Order bool

	answer func(i Instance, arguments json.RawMessage) (any, error)
	forLog func(arguments json.RawMessage) string
}

// Answer declares a question. The answer is a struct that encoding/json can marshal with
// snake_case keys; the error says in one sentence what is wrong with the question. What is
// tagged secret:"" among the arguments, a string, stands in no log.
func Answer[I Instance, A, R any](name string, f func(I, A) (R, error)) Question {
	return Question{Name: name, forLog: forLog[A], answer: func(i Instance, text json.RawMessage) (any, error) {
		asked, ok := i.(I)
		if !ok {
			return nil, fmt.Errorf("this %s cannot be asked for %s", i.Role(), name)
		}
		arguments, err := decode[A](text)
		if err != nil {
			return nil, fmt.Errorf("the arguments of %s cannot be read: %w", name, err)
		}
		return f(asked, arguments)
	}}
}

// decode reads arguments.
func decode[A any](text json.RawMessage) (arguments A, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&arguments)
	return arguments, err
}

// Follow declares an order, which changes nothing if it returns an error.
func Follow[I Instance, A, R any](name string, f func(I, A) (R, error)) Question {
	q := Answer(name, f)
	q.Order = true
	return q
}

// Ask has an instance answer a question of its role, or with order follow an order.
func (l List) Ask(i Instance, order bool, name string, arguments json.RawMessage) (any, error) {
	var known []string
	for _, r := range l {
		if r.Name != i.Role() {
			continue
		}
		for _, q := range r.questions {
			if q.Order != order {
				continue
			}
			if q.Name == name {
				return q.answer(i, arguments)
			}
			known = append(known, q.Name)
		}
	}
	what := "questions"
	if order {
		what = "orders"
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("a %s takes no %s", i.Role(), what)
	}
	return nil, fmt.Errorf("a %s does not know %q: its %s are %s", i.Role(), name, what, strings.Join(known, ", "))
}

// ForLog returns the arguments of an order as a log may show them: without secrets.
func (l List) ForLog(i Instance, order string, arguments json.RawMessage) string {
	for _, r := range l {
		for _, q := range r.questions {
			if r.Name == i.Role() && q.Order && q.Name == order {
				return q.forLog(arguments)
			}
		}
	}
	return ""
}
