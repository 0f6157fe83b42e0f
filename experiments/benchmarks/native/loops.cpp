// Pinocchio from C++ loops: a batch of states by some threads, or steps in sequence. Compiled twice: against the library
// as it is installed (its compiled instances), and from its templates for this processor (-march=native).
#include <thread>
#include <vector>

#include "pinocchio/algorithm/aba-derivatives.hpp"
#include "pinocchio/algorithm/aba.hpp"
#include "pinocchio/algorithm/crba.hpp"
#include "pinocchio/algorithm/joint-configuration.hpp"
#include "pinocchio/algorithm/rnea.hpp"

#include "model.hpp"

using namespace pinocchio;
using Row = Eigen::Map<const Eigen::VectorXd>;
using Out = Eigen::Map<Eigen::VectorXd>;
using Matrix = Eigen::Map<Eigen::Matrix<double, -1, -1, Eigen::RowMajor>>;

struct Loaded
{
  Model model;
  std::vector<Data> data;
};

extern "C" void * load(const char * path, int threads)
{
  try
  {
    auto * found = new Loaded{read_model(path), {}};
    for (int t = 0; t < threads; ++t) found->data.emplace_back(found->model);
    return found;
  }
  catch (...)
  {
    return nullptr;
  }
}

enum { FORWARD, INVERSE, MASS, LINEARIZE, ROLLOUT };

// `out` is written as an array of a row per state; null: answers stay in Pinocchio's `data`, as its users have them.
static void some(const Model & model, Data & data, int what, long from, long to, const double * q, const double * v,
                 const double * x, double * out, long steps, double dt)
{
  const long nq = model.nq, nv = model.nv;
  for (long k = from; k < to; ++k)
  {
    const Row qk(q + k * nq, nq), vk(v + k * nv, nv), xk(x + k * nv, nv);
    if (what == FORWARD)
    {
      aba(model, data, qk, vk, xk);
      if (out) Out(out + k * nv, nv) = data.ddq;
    }
    else if (what == INVERSE)
    {
      rnea(model, data, qk, vk, xk);
      if (out) Out(out + k * nv, nv) = data.tau;
    }
    else if (what == MASS)
    {
      crba(model, data, qk);
      if (out) Matrix(out + k * nv * nv, nv, nv) = data.M.selfadjointView<Eigen::Upper>();
    }
    else if (what == LINEARIZE)
    {
      computeABADerivatives(model, data, qk, vk, xk);
      if (out)
      {
        Matrix(out + (3 * k) * nv * nv, nv, nv) = data.ddq_dq;
        Matrix(out + (3 * k + 1) * nv * nv, nv, nv) = data.ddq_dv;
        Matrix(out + (3 * k + 2) * nv * nv, nv, nv) = data.Minv.selfadjointView<Eigen::Upper>();
      }
    }
    else
    {
      Eigen::VectorXd qs = qk, vs = vk, next = qk, step = vk;
      for (long s = 0; s < steps; ++s)
      {
        vs += dt * aba(model, data, qs, vs, xk);
        step = dt * vs;
        integrate(model, qs, step, next);
        qs.swap(next);
      }
      Out(out + k * nq, nq) = qs;
    }
  }
}

extern "C" void run(void * loaded, int what, int threads, long n, const double * q, const double * v, const double * x,
                    double * out, long steps, double dt)
{
  auto & l = *static_cast<Loaded *>(loaded);
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t)
    others.emplace_back([=, &l] { some(l.model, l.data[t], what, n * t / threads, n * (t + 1) / threads, q, v, x, out, steps, dt); });
  some(l.model, l.data[0], what, 0, n / threads, q, v, x, out, steps, dt);
  for (auto & other : others) other.join();
}
