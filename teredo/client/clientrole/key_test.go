// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

func TestCredential(t *testing.T) {
	for _, tt := range []struct {
		name   string
		client Settings
		want   teredo.Credential
	}{
		{"none", Settings{}, teredo.Credential{}},
		{"in the configuration", Settings{KeyID: "north", KeySecret: teredotest.Secret}, teredo.Credential{ID: "north", Secret: []byte(teredotest.Secret)}},
		{"in a file", Settings{KeyID: "north", KeySecretFile: teredotest.File(t, teredotest.Secret+"\n", 0o600), KeyAlgorithm: teredo.HMACSHA256},
			teredo.Credential{ID: "north", Secret: []byte(teredotest.Secret), Algorithm: teredo.HMACSHA256}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.client.credential()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("credential (-want +got):\n%s", diff)
			}
		})
	}
}
