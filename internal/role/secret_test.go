// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package role

import (
	"encoding/json"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config"
)

type login struct {
	User     string `json:"user"`
	Password string `json:"password" secret:""`
}

type arguments struct {
	login
	Second *login `json:"second,omitempty"`
}

// server takes orders.
type server struct{ Instance }

func (server) Role() string { return "server" }

// TestOrdersForTheLog: an order stands in the log with its arguments, but for secrets.
func TestOrdersForTheLog(t *testing.T) {
	plain := func(server, struct{}) (struct{}, error) { return struct{}{}, nil }
	enter := func(server, arguments) (struct{}, error) { return struct{}{}, nil }
	roles := List{
		{Section: config.Section{Name: "other"}, questions: []Question{Follow("enter", plain)}},
		{Section: config.Section{Name: "server"}, questions: []Question{Answer("enter", plain), Follow("enter", enter)}},
	}
	for _, tt := range []struct{ name, arguments, want string }{
		{"a secret", `{"user":"mig","password":"open"}`, `{"user":"mig","password":"(hidden)"}`},
		{"its key in capitals", `{"PassWord":"open"}`, `{"user":"","password":"(hidden)"}`},
		{"said twice", `{"password":"","password":"open"}`, `{"user":"","password":"(hidden)"}`},
		{"one within", `{"second":{"user":"a","password":"open"}}`, `{"user":"","password":"","second":{"user":"a","password":"(hidden)"}}`},
		{"none", `{"user":"mig"}`, `{"user":"mig","password":""}`},
		{"what cannot be read", `{"password":"open`, ""},
	} {
		if got := roles.ForLog(server{}, "enter", json.RawMessage(tt.arguments)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if got := roles.ForLog(server{}, "leave", json.RawMessage(`{"password":"open"}`)); got != "" {
		t.Errorf("an order that there is not: %s", got)
	}
}
