// SPDX-License-Identifier: Apache-2.0

// Package tenantfile reads the tenants of an edge from files, watches them and keeps a tenant.Table as
// they say. Each file is a tenant: a change touches only that one. Other sources hand theirs over to a
// Feed; a Book shared by all keeps what was claimed first. It does not route a connection.
package tenantfile
