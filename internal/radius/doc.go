// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package radius is the network's side of RADIUS (RFC 2865, 2866, 2869, 3162, 5080, 5176): it asks
// servers, in their order, who may come in, or tells them of sessions, and takes their requests to
// end or change some. Datagrams and the time go in, datagrams and answers come out: sockets and clock
// are the caller's. The form of packets is layeh.com/radius's, and this package alone knows that.
//
//house:part
package radius
