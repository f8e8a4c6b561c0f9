//! Load: bulk, request/response and datagrams. Promise: changes no setting.
