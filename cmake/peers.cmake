# Headers of libraries that the benchmark can use as peers. They are loaded at run time, so a build
# links none of them; without its headers a peer is left out, and the evidence says so.
find_package(Python3 QUIET COMPONENTS Interpreter)
set(python_packages "")
if(Python3_FOUND)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
    OUTPUT_VARIABLE python_packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_path(FLASHCORE_CUDNN_INCLUDE cudnn_graph.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${python_packages}/nvidia/cudnn/include)
find_path(FLASHCORE_ONEDNN_INCLUDE oneapi/dnnl/dnnl.h)
if(FLASHCORE_ONEDNN_INCLUDE)
  file(STRINGS ${FLASHCORE_ONEDNN_INCLUDE}/oneapi/dnnl/dnnl_version.h onednn_version
    REGEX "#define DNNL_VERSION_MAJOR 2")
endif()

# Sets FLASHCORE_PEER_SOURCES and FLASHCORE_PEER_INCLUDES for bench/.
set(FLASHCORE_PEER_SOURCES "")
set(FLASHCORE_PEER_INCLUDES "")
if(FLASHCORE_ONEDNN_INCLUDE AND onednn_version)
  list(APPEND FLASHCORE_PEER_SOURCES peers/onednn.cpp)
  list(APPEND FLASHCORE_PEER_INCLUDES ${FLASHCORE_ONEDNN_INCLUDE})
  message(STATUS "Peer oneDNN: headers in ${FLASHCORE_ONEDNN_INCLUDE}")
else()
  list(APPEND FLASHCORE_PEER_SOURCES peers/no_onednn.cpp)
  message(STATUS "Peer oneDNN: left out (no headers of version 2 found; package libdnnl-dev)")
endif()
if(FLASHCORE_HAS_CUDA AND FLASHCORE_CUDNN_INCLUDE)
  list(APPEND FLASHCORE_PEER_SOURCES peers/cudnn.cpp peers/cudnn_attention.cpp peers/cudnn_graph.cpp)
  list(APPEND FLASHCORE_PEER_INCLUDES ${FLASHCORE_CUDNN_INCLUDE})
  message(STATUS "Peer cuDNN: headers in ${FLASHCORE_CUDNN_INCLUDE}")
else()
  list(APPEND FLASHCORE_PEER_SOURCES peers/no_cudnn.cpp)
  message(STATUS "Peer cuDNN: left out (no cudnn_graph.h found, or no CUDA; PyPI's nvidia-cudnn-cu13)")
endif()
