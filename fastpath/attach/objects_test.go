// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
)

func TestObjectsOfAllArchitecturesLoad(t *testing.T) { fastpathtest.ObjectsLoad(t) }
